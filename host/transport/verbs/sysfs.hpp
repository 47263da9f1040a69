// What the kernel's files in /sys tell of network devices: their GIDs, and how far they are from a GPU.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace mscclpp::detail::ib {

using Gid = std::array<std::uint8_t, 16>;

/// How a device's port may address others.
enum class GidType { InfiniBand, RoceV1, RoceV2 };

struct GidEntry {
  int index;
  Gid gid;
  GidType type;
};

/// How far two PCI devices are from each other; less is nearer.
struct PciDistance {
  enum class Level { SamePort, SameHostBridge, SameNumaNode, Elsewhere };
  Level level;
  /// Bridges between them, as far as they have one above both.
  int hops;
  friend auto operator<=>(const PciDistance&, const PciDistance&) = default;
};

/// A tree laid out as /sys is; tests give another root.
class Sysfs {
 public:
  explicit Sysfs(std::filesystem::path root = "/sys") : root_(std::move(root)) {}

  /// One entry of a port's table of GIDs; nothing if it is not in use.
  std::optional<GidEntry> gidAt(const std::string& device, int port, int index) const;
  /// The entries in use, in the order of their indices.
  std::vector<GidEntry> gids(const std::string& device, int port) const;
  /// The entry to use unless the user names one: RoCE v2 over IPv4, else over IPv6 with a routable address before a
  /// link-local one, else RoCE v1; on InfiniBand the first. Nothing if there is none.
  std::optional<GidEntry> bestGid(const std::string& device, int port) const;

  /// From a verbs device to the PCI device at `busId` ("0000:3b:00.0", in upper or lower case). Level::Elsewhere if
  /// either is not to be found, as for software devices.
  PciDistance distance(const std::string& device, const std::string& busId) const;

 private:
  /// Calls visit(entry) for the entries in use until it returns false.
  template <typename Visit>
  void visitGids(const std::string& device, int port, Visit visit) const;
  std::filesystem::path folderOf(const std::string& device, int port) const;

  std::filesystem::path root_;
};

/// Whether it holds an IPv4 address (::ffff:a.b.c.d).
bool isIpv4(const Gid& gid);
/// Whether it is valid on its own link only (fe80::/10).
bool isLinkLocal(const Gid& gid);
/// As an IPv6 address, in full.
std::string nameOf(const Gid& gid);

}  // namespace mscclpp::detail::ib
