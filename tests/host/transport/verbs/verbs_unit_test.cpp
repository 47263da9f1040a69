// The parts of the verbs transport that need no device: reads of /sys, and wire formats.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "host/transport/verbs/device_list.hpp"
#include "host/transport/verbs/endpoint_info.hpp"
#include "host/transport/verbs/signal_code.hpp"
#include "host/transport/verbs/sysfs.hpp"
#include "mscclpp/host/base/error.hpp"

using namespace mscclpp;
using namespace mscclpp::detail::ib;
namespace fs = std::filesystem;

namespace {

/// A folder with the layout of /sys.
class Tree {
 public:
  Tree() : root_(fs::temp_directory_path() / ("mscclpp-sysfs-" + std::to_string(std::random_device()()))) {
    fs::create_directories(root_ / "class/infiniband");
    fs::create_directories(root_ / "bus/pci/devices");
  }
  ~Tree() { fs::remove_all(root_); }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  void write(const fs::path& file, const std::string& line) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << line << '\n';
  }
  void addGid(const std::string& device, int index, const std::string& gid, const std::string& type) {
    const fs::path port = fs::path("class/infiniband") / device / "ports/1";
    write(port / "gids" / std::to_string(index), gid);
    if (!type.empty()) write(port / "gid_attrs/types" / std::to_string(index), type);
  }
  void setLinkLayer(const std::string& device, const std::string& layer) {
    write(fs::path("class/infiniband") / device / "ports/1/link_layer", layer);
  }
  /// `path` is relative to /sys/devices.
  void addPci(const std::string& path, int node) {
    write(fs::path("devices") / path / "numa_node", std::to_string(node));
    const fs::path place = root_ / "devices" / path;
    fs::create_directory_symlink(place, root_ / "bus/pci/devices" / place.filename());
  }
  void addNic(const std::string& name, const std::string& path, int node) {
    addPci(path, node);
    fs::create_directories(root_ / "class/infiniband" / name);
    fs::create_directory_symlink(root_ / "devices" / path, root_ / "class/infiniband" / name / "device");
  }
  Sysfs sysfs() const { return Sysfs(root_); }

 private:
  fs::path root_;
};

constexpr const char* empty = "0000:0000:0000:0000:0000:0000:0000:0000";
constexpr const char* linkLocal = "fe80:0000:0000:0000:0255:84ff:fe2b:1001";
constexpr const char* routable = "fd00:0000:0000:0001:0255:84ff:fe2b:1001";
constexpr const char* ipv4 = "0000:0000:0000:0000:0000:ffff:0a4d:0001";

}  // namespace

TEST_CASE("RoCE v2 over IPv4 is preferred, then routable IPv6, then link-local, then RoCE v1") {
  Tree tree;
  tree.setLinkLayer("mlx5_0", "Ethernet");
  CHECK_FALSE(tree.sysfs().bestGid("mlx5_0", 1).has_value());
  tree.addGid("mlx5_0", 0, linkLocal, "IB/RoCE v1");
  CHECK(tree.sysfs().bestGid("mlx5_0", 1)->index == 0);
  CHECK(tree.sysfs().bestGid("mlx5_0", 1)->type == GidType::RoceV1);
  tree.addGid("mlx5_0", 1, linkLocal, "RoCE v2");
  CHECK(tree.sysfs().bestGid("mlx5_0", 1)->index == 1);
  tree.addGid("mlx5_0", 2, routable, "IB/RoCE v1");
  tree.addGid("mlx5_0", 3, routable, "RoCE v2");
  CHECK(tree.sysfs().bestGid("mlx5_0", 1)->index == 3);
  tree.addGid("mlx5_0", 4, empty, "");
  tree.addGid("mlx5_0", 5, ipv4, "IB/RoCE v1");
  tree.addGid("mlx5_0", 6, ipv4, "RoCE v2");
  tree.addGid("mlx5_0", 7, ipv4, "RoCE v2");
  CHECK(tree.sysfs().bestGid("mlx5_0", 1)->index == 6);
  CHECK(nameOf(tree.sysfs().bestGid("mlx5_0", 1)->gid) == ipv4);
  CHECK(tree.sysfs().gids("mlx5_0", 1).size() == 7);
  CHECK_FALSE(tree.sysfs().gidAt("mlx5_0", 1, 4).has_value());
  CHECK_FALSE(tree.sysfs().gidAt("mlx5_0", 1, 8).has_value());
  CHECK_FALSE(tree.sysfs().bestGid("mlx5_0", 2).has_value());
  tree.addGid("mlx5_0", 8, "nonsense", "RoCE v2");
  CHECK_FALSE(tree.sysfs().gidAt("mlx5_0", 1, 8).has_value());
}

TEST_CASE("InfiniBand uses its first GID") {
  Tree tree;
  tree.setLinkLayer("mlx5_1", "InfiniBand");
  tree.addGid("mlx5_1", 0, linkLocal, "");
  tree.addGid("mlx5_1", 1, routable, "");
  const auto best = tree.sysfs().bestGid("mlx5_1", 1);
  REQUIRE(best.has_value());
  CHECK(best->index == 0);
  CHECK(best->type == GidType::InfiniBand);
}

TEST_CASE("a GPU gets the nearest device by PCIe topology") {
  Tree tree;
  // A switch below root port 01.0 with GPU and NIC; a NIC at another port; one at the other socket; a software device.
  tree.addPci("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0", 0);
  tree.addNic("mlx5_0", "pci0000:80/0000:80:01.0/0000:81:00.0", 1);
  tree.addNic("mlx5_1", "pci0000:00/0000:00:02.0/0000:05:00.0", 0);
  tree.addNic("mlx5_2", "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0", 0);
  tree.addNic("mlx5_3", "pci0000:40/0000:40:01.0/0000:41:00.0", 0);
  const auto sysfs = tree.sysfs();
  using Level = PciDistance::Level;
  CHECK(sysfs.distance("mlx5_2", "0000:03:00.0") == PciDistance{Level::SameRootPort, 4});
  CHECK(sysfs.distance("mlx5_1", "0000:03:00.0").level == Level::SameHostBridge);
  CHECK(sysfs.distance("mlx5_3", "0000:03:00.0").level == Level::SameNumaNode);
  CHECK(sysfs.distance("mlx5_0", "0000:03:00.0").level == Level::System);
  CHECK(sysfs.distance("rxe0", "0000:03:00.0").level == Level::System);
  CHECK(sysfs.distance("mlx5_2", "0000:99:00.0").level == Level::System);

  CHECK(nearestDevice(sysfs, {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}, "0000:03:00.0", 0) == 2);
  CHECK(nearestDevice(sysfs, {"mlx5_0", "mlx5_1", "mlx5_3"}, "0000:03:00.0", 0) == 1);
  CHECK(nearestDevice(sysfs, {"mlx5_0", "mlx5_3"}, "0000:03:00.0", 5) == 1);
  CHECK(nearestDevice(sysfs, {"mlx5_0"}, "0000:03:00.0", 5) == 0);
  // CUDA reports bus ids in upper case. Equally near devices are assigned round-robin.
  tree.addPci("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:02.0/0000:0a:00.0", 0);
  CHECK(tree.sysfs().distance("mlx5_2", "0000:0A:00.0").level == Level::SameRootPort);
  const std::vector<std::string> equals{"rxe0", "rxe1", "rxe2"};
  for (int gpu = 0; gpu < 6; ++gpu) CHECK(nearestDevice(sysfs, equals, "0000:03:00.0", gpu) == gpu % 3);
}

TEST_CASE("devices are ordered by their numbers, or as the user lists them") {
  const std::vector<std::string> present{"mlx5_10", "mlx5_2", "bnxt_re0", "mlx5_0"};
  CHECK(orderDevices(present, "") == std::vector<std::string>{"bnxt_re0", "mlx5_0", "mlx5_2", "mlx5_10"});
  CHECK(orderDevices(present, "mlx5_10,mlx5_0") == std::vector<std::string>{"mlx5_10", "mlx5_0"});
  CHECK_THROWS_WITH_AS(orderDevices(present, "mlx5_0,mlx5_1"),
                       doctest::Contains("there is no verbs device 'mlx5_1'; this host has: bnxt_re0, mlx5_0, mlx5_2"),
                       Error);
  CHECK_THROWS_AS(orderDevices({}, "mlx5_0"), Error);
  CHECK(orderDevices({}, "").empty());
}

TEST_CASE("a number of any size is decoded from its codes") {
  NumberDecoder reader;
  std::mt19937_64 generator(3);
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t number = i < 4 ? ~std::uint64_t{0} << (i * 18) : generator() >> (generator() % 64);
    const auto target = static_cast<std::uint32_t>(generator() % SignalCode::targets);
    const SignalCodes codes = encodeNumber(SignalCode::Opcode::Add, target, number);
    CHECK(codes.count == (number < (1ULL << 18) ? 1 : number < (1ULL << 36) ? 2 : number < (1ULL << 54) ? 3 : 4));
    for (int c = 0; c < codes.count; ++c) {
      const SignalCode code = SignalCode::decode(codes.codes[static_cast<std::size_t>(c)].encode());
      CHECK(code.target == target);
      CHECK((code.opcode == SignalCode::Opcode::Add) == (c + 1 == codes.count));
      const std::uint64_t read = reader.add(code);
      if (c + 1 == codes.count) CHECK(read == number);
    }
  }
}

TEST_CASE("endpoint info is read back, and invalid info is rejected") {
  EndpointInfo info;
  info.nic = "rxe0 port 1";
  info.process = "process 7 on host a";
  info.mode = SignalMode::Immediate;
  info.ethernet = true;
  info.mtu = 3;
  info.lid = 70000;
  info.hasGid = true;
  info.gid = {1, 2, 3};
  info.atomics = 16;
  info.queuePairs = {{17, 4711}, {18, 4712}};
  const std::vector<char> bytes = info.serialize();
  const EndpointInfo read = EndpointInfo::deserialize(bytes);
  CHECK(read.nic == info.nic);
  CHECK(read.process == info.process);
  CHECK(read.mode == SignalMode::Immediate);
  CHECK(read.gid == info.gid);
  CHECK(read.queuePairs[1].initialPsn == 4712);
  CHECK(read.serialize() == bytes);

  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK_THROWS_AS(EndpointInfo::deserialize({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}),
                    Error);
  }
  const auto refused = [&](const auto& change) {
    EndpointInfo wrong = info;
    change(wrong);
    CHECK_THROWS_AS(EndpointInfo::deserialize(wrong.serialize()), Error);
  };
  refused([](EndpointInfo& d) { d.mtu = 6; });
  refused([](EndpointInfo& d) { d.mtu = 0; });
  refused([](EndpointInfo& d) { d.queuePairs.clear(); });
  refused([](EndpointInfo& d) { d.queuePairs.resize(maxQueuePairs + 1); });
  refused([](EndpointInfo& d) { d.mode = static_cast<SignalMode>(2); });
  refused([](EndpointInfo& d) { d.nic = "\x1b[31m"; });
  // Each byte changed in turn: rejected or read, without undefined behaviour (checked by the sanitizers).
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::vector<char> wrong = bytes;
    wrong[i] = static_cast<char>(wrong[i] ^ 0xff);
    try {
      static_cast<void>(EndpointInfo::deserialize(wrong));
    } catch (const Error&) {
    }
  }

  EndpointInfo other = info;
  other.mode = SignalMode::Atomic;
  CHECK(negotiate(info, other) == SignalMode::Immediate);
  CHECK(negotiate(other, info) == SignalMode::Immediate);
  CHECK(negotiate(other, other) == SignalMode::Atomic);
}
