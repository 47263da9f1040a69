// The library's view of devices compared with the output of ibv_devinfo, and batches posted with one doorbell; in the
// VM of tests/vm/.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "host/transport/verbs/queue_pair.hpp"
#include "host/transport/verbs/region.hpp"
#include "host/transport/verbs/sysfs.hpp"
#include "host/transport/verbs/verbs_device.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "mscclpp/host/transport/ib_devices.hpp"
#include "verbs_pair.hpp"

using namespace mscclpp;
using namespace mscclpp::detail::ib;

namespace {

std::string outputOf(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::string text;
  std::array<char, 4096> buffer{};
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe.get())) {
    text.append(buffer.data(), count);
  }
  return text;
}

/// The "name: value" lines of ibv_devinfo -v for each device; the first of each name.
std::vector<std::map<std::string, std::string>> devinfo() {
  std::vector<std::map<std::string, std::string>> devices;
  std::istringstream lines(outputOf("ibv_devinfo -v"));
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const auto begin = line.find_first_not_of(" \t");
    const std::string name = line.substr(begin, colon - begin);
    const auto value = line.find_first_not_of(" \t", colon + 1);
    if (name == "hca_id") devices.emplace_back();
    if (!devices.empty()) devices.back().emplace(name, value == std::string::npos ? "" : line.substr(value));
  }
  return devices;
}

bool says(const std::map<std::string, std::string>& info, const std::string& name, const std::string& value) {
  const auto found = info.find(name);
  const std::string said = found == info.end() ? "nothing" : found->second;
  if (said != value) MESSAGE(name, ": ibv_devinfo says ", said, ", the library ", value);
  return said == value;
}

}  // namespace

TEST_CASE("devices and their limits match ibv_devinfo") {
  const auto infos = devinfo();
  REQUIRE(infos.size() == 4);
  REQUIRE(getIBDeviceCount() == 4);
  for (int i = 0; i < getIBDeviceCount(); ++i) {
    const auto transport = static_cast<Transport>(static_cast<int>(Transport::IB0) + i);
    const std::string name = getIBDeviceName(transport);
    CHECK(name == "rxe" + std::to_string(i));
    CHECK(getIBTransportByDeviceName(name) == transport);
    const auto& info = infos[static_cast<std::size_t>(i)];
    CHECK(says(info, "hca_id", name));
    const auto device = VerbsDevice::open(name);
    const auto& attributes = device->attributes();
    CHECK(says(info, "phys_port_cnt", std::to_string(attributes.phys_port_cnt)));
    CHECK(says(info, "max_qp_wr", std::to_string(attributes.max_qp_wr)));
    CHECK(says(info, "max_cqe", std::to_string(attributes.max_cqe)));
    CHECK(says(info, "max_pkeys", std::to_string(attributes.max_pkeys)));
    CHECK(says(info, "max_qp_rd_atom", std::to_string(attributes.max_qp_rd_atom)));
    CHECK(says(info, "max_qp_init_rd_atom", std::to_string(attributes.max_qp_init_rd_atom)));
    CHECK(says(info, "atomic_cap", device->hasAtomics() ? "ATOMIC_HCA (1)" : "ATOMIC_NONE (0)"));
    const Port port = device->port(-1, -1);
    CHECK(port.number == 1);
    CHECK(says(info, "port", "1"));
    CHECK(says(info, "state", "PORT_ACTIVE (4)"));
    CHECK(says(info, "link_layer", port.ethernet() ? "Ethernet" : "InfiniBand"));
    CHECK(says(info, "port_lid", std::to_string(port.attributes.lid)));
    CHECK(port.gidIndex == 1);
    CHECK(says(info, "GID[  1]", "::ffff:10.77.0." + std::to_string(i + 1) + ", RoCE v2"));
    CHECK(isIpv4(port.gid));
  }
  CHECK_THROWS_AS(getIBDeviceName(Transport::IB4), Error);
  CHECK_THROWS_AS(getIBDeviceName(Transport::Ethernet), Error);
  CHECK_THROWS_AS(getIBTransportByDeviceName("rxe4"), Error);
  CHECK(nearestIBTransport(DeviceType::CPU) == Transport::IB0);
}

TEST_CASE("the driver supports what the transport uses") {
  const auto device = VerbsDevice::open("rxe0");
  const Port port = device->port(1, -1);
  CHECK(device->hasAtomics());                                         // signals by fetch-and-add
  CHECK(device->attributes().max_qp_init_rd_atom >= 16);               // ... 16 at a time
  CHECK(device->attributes().max_mr_size > (std::uint64_t{1} << 40));  // one region for any buffer
  CHECK(port.attributes.max_msg_sz >= (1U << 23));                     // larger writes are split
  CHECK(port.attributes.gid_tbl_len >= 2);
  const IbvPtr<ibv_cq> queue(ibvSymbols().createCq(device->context(), 16, nullptr, nullptr, 0));
  const QueuePair pair(*device, port, {}, queue.get(), queue.get(), {8, 8, 1});
  CHECK(pair.inlineBytes() >= 220);  // small writes are sent inline
}

namespace {

int doorbells = 0;
int (*postSend)(ibv_qp*, ibv_send_wr*, ibv_send_wr**) = nullptr;

int countedPostSend(ibv_qp* pair, ibv_send_wr* requests, ibv_send_wr** refused) {
  ++doorbells;
  return postSend(pair, requests, refused);
}

}  // namespace

TEST_CASE("a batch needs one doorbell and produces one completion") {
  const auto device = VerbsDevice::open("rxe0");
  const auto regions = std::make_shared<RegionTable>(device);
  const Port port = device->port(1, -1);
  std::vector<std::uint64_t> words(64, 0);
  for (std::size_t i = 0; i < 32; ++i) words[i] = i + 1;
  const auto region = regions->registerMemory(words.data(), words.size() * 8);
  // Memory that may be freed and reallocated at the same address is registered each time, a HostBuffer once.
  CHECK(regions->registerMemory(words.data(), words.size() * 8)->id() != region->id());
  const HostBuffer buffer(4096);
  const auto once = regions->registerMemory(buffer.data(), 4096);
  CHECK(regions->registerMemory(buffer.data(), 4096)->id() == once->id());
  CHECK(regions->registerMemory(buffer.data(), 2048)->id() != once->id());
  {
    std::array<std::shared_ptr<const Region>, 4> together;
    std::vector<std::thread> threads;
    for (auto& each : together) {
      threads.emplace_back([&] { each = regions->registerMemory(static_cast<char*>(buffer.data()) + 8, 1024); });
    }
    for (auto& thread : threads) thread.join();
    for (const auto& each : together) CHECK(each->id() == together[0]->id());
    CHECK(regions->use(together[0]->id(), [](const Region&) {}));
  }
  const IbvPtr<ibv_cq> queue(ibvSymbols().createCq(device->context(), 128, nullptr, nullptr, 0));
  EndpointConfig::Ib config;
  QueuePair a(*device, port, config, queue.get(), queue.get(), {64, 40, 1});
  QueuePair b(*device, port, config, queue.get(), queue.get(), {64, 40, 1});
  EndpointInfo self;
  self.mtu = port.attributes.active_mtu;
  self.ethernet = self.hasGid = true;
  self.gid = port.gid;
  a.connect(port, config, self, b.address(), 1);
  b.connect(port, config, self, a.address(), 1);

  postSend = device->context()->ops.post_send;
  device->context()->ops.post_send = countedPostSend;
  for (std::uint64_t i = 0; i < 32; ++i) {
    REQUIRE(a.freeSlots() > 0);
    ibv_send_wr& request = a.add(7);
    request.opcode = IBV_WR_RDMA_WRITE;
    request.wr.rdma = {reinterpret_cast<std::uint64_t>(&words[32 + i]), region->remoteKey()};
    *request.sg_list = {reinterpret_cast<std::uint64_t>(&words[i]), 8, region->localKey()};
    request.num_sge = 1;
  }
  CHECK(doorbells == 0);
  CHECK_FALSE(a.full());
  CHECK(a.freeSlots() == 32);
  a.post();
  a.post();
  device->context()->ops.post_send = postSend;
  CHECK(doorbells == 1);
  CHECK(a.firstIncomplete() == 7);

  ibv_wc completion{};
  int count = 0;
  const auto end = std::chrono::steady_clock::now() + mscclpp::test::waitLimit;
  while (count == 0 && std::chrono::steady_clock::now() < end) count = ibv_poll_cq(queue.get(), 1, &completion);
  REQUIRE(count == 1);
  CHECK(completion.status == IBV_WC_SUCCESS);
  CHECK(completion.wr_id == 32);
  CHECK(ibv_poll_cq(queue.get(), 1, &completion) == 0);
  a.complete(32);
  CHECK(a.firstIncomplete() == 0);
  CHECK(a.freeSlots() == 64);
  for (std::size_t i = 0; i < 32; ++i) CHECK(words[32 + i] == i + 1);
}
