// Properties of network devices from /sys: their GIDs, and their distance to a GPU.
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

/// The addressing scheme of a GID.
enum class GidType { InfiniBand, RoceV1, RoceV2 };

struct GidEntry {
  int index;
  Gid gid;
  GidType type;
};

/// The distance between two PCI devices; less is nearer.
struct PciDistance {
  enum class Level { SameRootPort, SameHostBridge, SameNumaNode, System };
  Level level;
  /// Number of bridges between them, if they have a common bridge.
  int hops;
  friend auto operator<=>(const PciDistance&, const PciDistance&) = default;
};

/// A directory tree with the layout of /sys; tests use another root.
class Sysfs {
 public:
  explicit Sysfs(std::filesystem::path root = "/sys") : root_(std::move(root)) {}

  /// One entry of a port's GID table; empty if it is not in use.
  std::optional<GidEntry> gidAt(const std::string& device, int port, int index) const;
  /// The entries in use, in the order of their indices.
  std::vector<GidEntry> gids(const std::string& device, int port) const;
  /// The default entry: RoCE v2 over IPv4, else over IPv6 with a routable address before a link-local one, else RoCE
  /// v1; on InfiniBand the first. Empty if there is none.
  std::optional<GidEntry> bestGid(const std::string& device, int port) const;

  /// From a verbs device to the PCI device at `busId` ("0000:3b:00.0", in upper or lower case). Level::System if either
  /// is not found, as for software devices.
  PciDistance distance(const std::string& device, const std::string& busId) const;

 private:
  /// Calls visit(entry) for the entries in use until it returns false.
  template <typename Visit>
  void visitGids(const std::string& device, int port, Visit visit) const;
  std::filesystem::path portPath(const std::string& device, int port) const;

  std::filesystem::path root_;
};

/// Whether it holds an IPv4 address (::ffff:a.b.c.d).
bool isIpv4(const Gid& gid);
/// Whether it is a link-local address (fe80::/10).
bool isLinkLocal(const Gid& gid);
/// As an IPv6 address, not abbreviated.
std::string nameOf(const Gid& gid);

}  // namespace mscclpp::detail::ib
