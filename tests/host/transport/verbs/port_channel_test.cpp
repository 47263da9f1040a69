// Port channels of CPU ranks over verbs, in the VM of tests/vm/: the cases of the other transports, and an
// all-reduce.
#include <cstdlib>

#include "mscclpp/host/channel/host_semaphore.hpp"
#include "mscclpp/host/transport/ib_devices.hpp"
#include "tests/host/proxy/port_channel_cases.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

// A process uses the device with the index of its rank, as the ranks of one host do.
const bool chosen = [] {
  const char* rank = std::getenv("MSCCLPP_TEST_RANK");
  portTransport() = rank != nullptr && std::atoi(rank) % 2 == 1 ? Transport::IB1 : Transport::IB0;
  return true;
}();

Transport deviceOf(int rank) {
  return static_cast<Transport>(static_cast<int>(Transport::IB0) + rank % getIBDeviceCount());
}

/// Each rank puts its values into its slot at every peer, and sums what it has received.
struct AllReduceBody {
  const PortChannelHandle* channels;  ///< by peer; this rank's entry is not used
  const std::uint64_t* input;
  const std::uint64_t* slots;  ///< by rank
  std::uint64_t* output;
  int ranks;
  int rank;
  int words;
  std::uint64_t* failures;

  template <class GridType>
  void operator()(int /*rank*/, const GridType& grid) const {
    const auto block = grid.block();
    const std::uint64_t bytes = static_cast<std::uint64_t>(words) * 8;
    std::uint64_t errors = 0;
    if (block.rank() == 0) {
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == rank) continue;
        auto channel = channels[peer];
        errors += channel.putWithSignal(static_cast<std::uint64_t>(rank) * bytes, 0, bytes) ? 0 : 1;
      }
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == rank) continue;
        auto channel = channels[peer];
        errors += channel.wait() ? 0 : 1;
      }
    }
    block.sync();
    for (int i = block.rank(); i < words; i += block.size()) {
      std::uint64_t sum = 0;
      for (int peer = 0; peer < ranks; ++peer) sum += peer == rank ? input[i] : slots[peer * words + i];
      output[i] = sum;
    }
    block.sync();
    if (block.rank() == 0) {
      for (int peer = 0; peer < ranks; ++peer) {
        auto channel = channels[peer];
        if (peer != rank) errors += channel.flush() ? 0 : 1;
      }
    }
    if (errors != 0) arch::reduceAdd<arch::Order::Relaxed, arch::Scope::Device>(failures, errors);
  }
};

void allReduce(std::shared_ptr<Bootstrap> bootstrap) {
  constexpr int words = 5000;
  constexpr int rounds = 3;
  const int rank = bootstrap->getRank();
  const int ranks = bootstrap->getNranks();
  const Transport own = deviceOf(rank);
  Communicator communicator(bootstrap);
  const PortBuffer input(words);
  const PortBuffer slots(static_cast<std::size_t>(words * ranks));
  const PortBuffer output(words);
  const PortBuffer failures(1);
  const auto inbox = communicator.registerMemory(slots.data(), words * 8 * static_cast<std::size_t>(ranks), own);
  const auto outbox = communicator.registerMemory(input.data(), words * 8, own);
  ProxyService service(portOptions());
  const MemoryId src = service.addMemory(outbox);
  std::vector<PortChannel> channels(static_cast<std::size_t>(ranks));
  std::vector<PortChannelHandle> handles(static_cast<std::size_t>(ranks));
  std::vector<std::shared_future<Connection>> connections(static_cast<std::size_t>(ranks));
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    connections[static_cast<std::size_t>(peer)] = communicator.connect({own, DeviceType::CPU}, peer);
    communicator.sendMemory(inbox, peer);
  }
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    const auto index = static_cast<std::size_t>(peer);
    const Connection connection = connections[index].get();
    const MemoryId dst = service.addMemory(communicator.recvMemory(peer).get());
    channels[index] = service.portChannel(service.buildAndAddSemaphore(communicator, connection), dst, src);
    handles[index] = channels[index].deviceHandle();
  }
  service.startProxy();
  for (int round = 0; round < rounds; ++round) {
    const auto valueOf = [&](int of, int i) {
      return static_cast<std::uint64_t>((of + 1) * 1000003 + i * (round + 1));
    };
    std::vector<std::uint64_t> values;
    std::vector<std::uint64_t> expected;
    for (int i = 0; i < words; ++i) {
      values.push_back(valueOf(rank, i));
      expected.push_back(0);
      for (int of = 0; of < ranks; ++of) expected.back() += valueOf(of, i);
    }
    input.write(values);
    bootstrap->barrier();  // the slots have been read
    runPortBody(1, AllReduceBody{handles.data(), input.data(), slots.data(), output.data(), ranks, rank, words,
                                 failures.data()});
    CHECK(output.read() == expected);
  }
  communicator.monitor(DeviceType::CPU)->check();
  CHECK(failures.read()[0] == 0);
  service.stopProxy();
  bootstrap->barrier();
}

void signalBothWays(std::shared_ptr<Bootstrap> bootstrap) {
  const int peer = 1 - bootstrap->getRank();
  Communicator communicator(bootstrap);
  for (const auto mode : {EndpointConfig::Ib::Mode::Host, EndpointConfig::Ib::Mode::HostNoAtomic}) {
    EndpointConfig config(deviceOf(bootstrap->getRank()), DeviceType::CPU);
    config.ib.mode = mode;
    const auto connection = communicator.connect(config, peer).get();
    // Several semaphores of one connection.
    Host2HostSemaphore first(communicator, connection);
    Host2HostSemaphore second(communicator, connection);
    for (int i = 0; i < 50; ++i) {
      first.signal();
      first.wait(-1);
      if (i % 3 == 0) second.signal();
    }
    for (int i = 0; i < 50; i += 3) second.wait(-1);
    CHECK_FALSE(first.poll());
    CHECK_FALSE(second.poll());
    bootstrap->barrier();
  }
}

}  // namespace

TEST_CASE("an all-reduce over port channels on four devices, ranks as threads") {
  CHECK(getIBDeviceCount() == 4);
  runAsThreads(4, allReduce);
}
TEST_CASE("an all-reduce over port channels, ranks as processes") {
  runAsProcesses(3, "one process reduces");
}
TEST_CASE("one process reduces" * doctest::skip()) {
  allReduce(bootstrapOfProcess());
}

TEST_CASE("semaphores between hosts, ranks as processes") {
  runAsProcesses(2, "one process signals");
}
TEST_CASE("one process signals" * doctest::skip()) {
  signalBothWays(bootstrapOfProcess());
}
