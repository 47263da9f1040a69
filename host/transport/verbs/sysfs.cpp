#include "host/transport/verbs/sysfs.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>

namespace mscclpp::detail::ib {

namespace {

namespace fs = std::filesystem;

// The first line of a file; empty if it cannot be read: kernels return EINVAL for unused entries of a table.
std::optional<std::string> readLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<Gid> parseGid(const std::string& text) {
  Gid gid{};
  std::size_t digits = 0;
  for (char c : text) {
    if (c == ':') continue;
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0 || digits == 2 * gid.size()) return std::nullopt;
    const int value = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    auto& byte = gid[digits / 2];
    byte = static_cast<std::uint8_t>(byte << 4 | value);
    ++digits;
  }
  if (digits != 2 * gid.size()) return std::nullopt;
  return gid;
}

GidType parseType(const std::string& text) {
  if (text == "RoCE v2") return GidType::RoceV2;
  // Kernels write "IB/RoCE v1" for both; the link layer of the port distinguishes them.
  return text == "RoCE v1" ? GidType::RoceV1 : GidType::InfiniBand;
}

fs::path resolve(const fs::path& path) {
  std::error_code failure;
  fs::path resolved = fs::canonical(path, failure);
  return failure ? fs::path() : resolved;
}

// The PCI devices from the host bridge down to the device, such as {pci0000:00, 0000:00:01.0, 0000:01:00.0}.
std::vector<std::string> pciPath(const fs::path& resolved) {
  std::vector<std::string> path;
  for (const auto& part : resolved) {
    const std::string name = part.string();
    if (name.starts_with("pci") && name.find(':') != std::string::npos) path.clear();
    if (path.empty() ? name.starts_with("pci") && name.find(':') != std::string::npos
                     : std::count(name.begin(), name.end(), ':') == 2) {
      path.push_back(name);
    }
  }
  return path;
}

int numaNode(const fs::path& resolved) {
  const auto line = readLine(resolved / "numa_node");
  return line && !line->empty() && std::isdigit(static_cast<unsigned char>((*line)[0])) != 0 ? std::stoi(*line) : -1;
}

int preference(const GidEntry& entry) {
  if (entry.type == GidType::InfiniBand) return 4;
  if (entry.type == GidType::RoceV1) return 3;
  if (isIpv4(entry.gid)) return 0;
  return isLinkLocal(entry.gid) ? 2 : 1;
}

}  // namespace

fs::path Sysfs::portPath(const std::string& device, int port) const {
  return root_ / "class/infiniband" / device / "ports" / std::to_string(port);
}

std::optional<GidEntry> Sysfs::gidAt(const std::string& device, int port, int index) const {
  const fs::path folder = portPath(device, port);
  const auto text = readLine(folder / "gids" / std::to_string(index));
  const auto gid = text ? parseGid(*text) : std::nullopt;
  if (!gid || *gid == Gid{}) return std::nullopt;
  const auto type = readLine(folder / "gid_attrs/types" / std::to_string(index));
  GidEntry entry{index, *gid, type ? parseType(*type) : GidType::InfiniBand};
  if (entry.type == GidType::InfiniBand && readLine(folder / "link_layer") == "Ethernet") entry.type = GidType::RoceV1;
  return entry;
}

template <typename Visit>
void Sysfs::visitGids(const std::string& device, int port, Visit visit) const {
  const fs::path table = portPath(device, port) / "gids";
  for (int index = 0; fs::exists(table / std::to_string(index)); ++index) {
    const auto entry = gidAt(device, port, index);
    if (entry && !visit(*entry)) return;
  }
}

std::vector<GidEntry> Sysfs::gids(const std::string& device, int port) const {
  std::vector<GidEntry> entries;
  visitGids(device, port, [&](const GidEntry& entry) {
    entries.push_back(entry);
    return true;
  });
  return entries;
}

std::optional<GidEntry> Sysfs::bestGid(const std::string& device, int port) const {
  std::optional<GidEntry> best;
  visitGids(device, port, [&](const GidEntry& entry) {
    if (!best || preference(entry) < preference(*best)) best = entry;
    // Tables are long and mostly empty, and no entry ranks higher than these two: stop.
    return preference(*best) != 0 && best->type != GidType::InfiniBand;
  });
  return best;
}

PciDistance Sysfs::distance(const std::string& device, const std::string& busId) const {
  std::string lower;
  std::transform(busId.begin(), busId.end(), std::back_inserter(lower),
                 [](unsigned char c) { return std::tolower(c); });
  const fs::path here = resolve(root_ / "class/infiniband" / device / "device");
  const fs::path there = resolve(root_ / "bus/pci/devices" / lower);
  const auto a = pciPath(here);
  const auto b = pciPath(there);
  if (a.empty() || b.empty()) return {PciDistance::Level::System, 0};
  const auto [endA, endB] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const auto shared = std::distance(a.begin(), endA);
  const int hops = static_cast<int>(std::distance(endA, a.end()) + std::distance(endB, b.end()));
  // Host bridge, root port, ...: below a common root port traffic does not cross the CPU.
  if (shared >= 2) return {PciDistance::Level::SameRootPort, hops};
  if (shared == 1) return {PciDistance::Level::SameHostBridge, hops};
  const int node = numaNode(here);
  if (node >= 0 && node == numaNode(there)) return {PciDistance::Level::SameNumaNode, 0};
  return {PciDistance::Level::System, 0};
}

bool isIpv4(const Gid& gid) {
  return std::all_of(gid.begin(), gid.begin() + 10, [](auto byte) { return byte == 0; }) && gid[10] == 0xff &&
         gid[11] == 0xff;
}

bool isLinkLocal(const Gid& gid) {
  return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

std::string nameOf(const Gid& gid) {
  std::string text;
  for (std::size_t i = 0; i < gid.size(); i += 2) {
    std::array<char, 8> group{};
    std::snprintf(group.data(), group.size(), "%s%02x%02x", i == 0 ? "" : ":", gid[i], gid[i + 1]);
    text += group.data();
  }
  return text;
}

}  // namespace mscclpp::detail::ib
