// A rank of a multicast group fails or does not arrive: the others get an error that names it, and none of their calls
// waits forever. Also multicast that is disabled.
#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/channel/nvls.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "tests/host/spawned_ranks.hpp"

#if MSCCLPP_HAVE_CUDA
#include "mscclpp/host/cuda/gpu.hpp"
#endif

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

constexpr int failingRank = 2;

void expectError(ErrorCode code, const std::string& text, const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  try {
    call();
    CHECK_MESSAGE(false, "nothing was thrown");
  } catch (const Error& error) {
    CAPTURE(std::string(error.what()));
    CHECK(error.getErrorCode() == code);
    CHECK(std::string(error.what()).find(text) != std::string::npos);
  }
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
}

}  // namespace

TEST_CASE("a rank that fails before memory is bound") {
  runAsProcesses(3, "one process binds without a peer");
}
TEST_CASE("one process binds without a peer" * doctest::skip()) {
  const auto rendezvous = bootstrapOfProcess();
  const auto bootstrap = tcpBootstrapOver(*rendezvous);
  const auto communicator = std::make_shared<Communicator>(bootstrap);
  const auto connection = connectNvlsCollectiveOn(DeviceType::CPU, communicator, {0, 1, 2}, 4096);
  const HostBuffer buffer(4096);
  rendezvous->barrier();  // messages that are still queued in the failing rank would be lost
  if (bootstrap->getRank() == failingRank) ::_exit(0);  // no destructor sends a goodbye
  expectError(ErrorCode::RemoteError, "rank 2", [&] { connection->bindMemory(buffer.data(), 4096); });
  expectError(ErrorCode::RemoteError, "rank 2", [&] {
    connectNvlsCollectiveOn(DeviceType::CPU, communicator, {0, 1, 2}, 4096);
  });
  rendezvous->send(std::vector<char>(1), 1 - bootstrap->getRank(), 1);  // leave together
  std::vector<char> token;
  rendezvous->recv(token, 1 - bootstrap->getRank(), 1);
}

TEST_CASE("a rank that does not come") {
  runAsProcesses(3, "one process connects without a peer");
}
TEST_CASE("one process connects without a peer" * doctest::skip()) {
  const auto rendezvous = bootstrapOfProcess();
  const auto bootstrap = tcpBootstrapOver(*rendezvous);
  const auto communicator = std::make_shared<Communicator>(bootstrap);
  bootstrap->setTimeout(std::chrono::seconds(1));
  if (bootstrap->getRank() != failingRank) {
    expectError(ErrorCode::Timeout, "connectNvlsCollective: while waiting for rank 2 to prepare: ", [&] {
      connectNvlsCollectiveOn(DeviceType::CPU, communicator, {0, 1, 2}, 4096);
    });
  }
  rendezvous->barrier();  // the rank that did not connect goes on until here
}

TEST_CASE("a rank that does not join by the serialized connection") {
  ::setenv("MSCCLPP_BOOTSTRAP_TIMEOUT", "1", 1);
  runAsProcesses(1, "one process joins alone");
  ::unsetenv("MSCCLPP_BOOTSTRAP_TIMEOUT");
}
TEST_CASE("one process joins alone" * doctest::skip()) {
  bootstrapOfProcess();
  NvlsConnection connection(4096, 2, DeviceType::CPU);
  const HostBuffer buffer(4096);
  expectError(ErrorCode::Timeout, "rank 1 of 2 is missing", [&] { connection.bindMemory(buffer.data(), 4096); });
}

TEST_CASE("a rank that does not signal") {
  runAsThreads(2, [](std::shared_ptr<Bootstrap> bootstrap) {
    const auto communicator = std::make_shared<Communicator>(bootstrap);
    const auto connection = connectNvlsCollectiveOn(DeviceType::CPU, communicator, {0, 1}, 4096);
    const HostBuffer buffer(4096);
    const auto channel = connection->bindMemory(buffer.data(), 4096);
    if (bootstrap->getRank() == 0) {
      auto handle = channel.deviceHandle();
      handle.barrier_.waitTimeout = 100'000'000;
      handle.signal();
      CHECK_FALSE(handle.wait());
      expectError(ErrorCode::Timeout, "a signal", [&] { communicator->monitor(DeviceType::CPU)->check(); });
    }
    bootstrap->barrier();
  });
}

TEST_CASE("a rank that leaves ends the barriers of its groups, and no others") {
  std::array<std::shared_ptr<WaitMonitor>, 2> monitors;
  runAsThreads(3, [&](std::shared_ptr<Bootstrap> rendezvous) {
    auto bootstrap = tcpBootstrapOver(*rendezvous);
    auto communicator = std::make_shared<Communicator>(bootstrap);
    const int rank = bootstrap->getRank();
    const HostBuffer buffer(4096);
    const auto connect = [&](const std::vector<int>& ranks) {
      return connectNvlsCollectiveOn(DeviceType::CPU, communicator, ranks, 4096)->bindMemory(buffer.data(), 4096);
    };
    SwitchChannel all = connect({0, 1, 2});
    SwitchChannel two;
    if (rank < 2) {
      two = connect({0, 1});
      monitors[static_cast<std::size_t>(rank)] = communicator->monitor(DeviceType::CPU);
    }
    rendezvous->barrier();
    if (rank == 2) return;  // destroys everything, in order
    const auto waitOn = [](const SwitchChannel& channel) {
      auto handle = channel.deviceHandle();
      handle.barrier_.waitTimeout = 60'000'000'000;
      return handle.wait();
    };
    if (rank == 0) {
      // Rank 1 waits for the signal of this rank until both know that rank 2 has left, and long after.
      for (const auto& monitor : monitors) {
        while (!monitor->hasLeft(2)) std::this_thread::yield();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    two.deviceHandle().signal();
    CHECK(waitOn(two));
    rendezvous->send(std::vector<char>(1), 1 - rank, 1);
    std::vector<char> token;
    rendezvous->recv(token, 1 - rank, 1);
    all.deviceHandle().signal();
    CHECK_FALSE(waitOn(all));
    expectError(ErrorCode::RemoteError, "rank 2 has left the job",
                [&] { communicator->monitor(DeviceType::CPU)->check(); });
  });
}

TEST_CASE("multicast that the environment disables") {
  for (const auto& variable : {std::pair{"NCCL_NVLS_ENABLE", "0"}, {"MSCCLPP_FORCE_DISABLE_NVLS", "1"}}) {
    CAPTURE(variable.first);
    ::setenv(variable.first, variable.second, 1);
    runAsProcesses(2, "one process may not");
    ::unsetenv(variable.first);
  }
}
TEST_CASE("one process may not" * doctest::skip()) {
  const auto bootstrap = bootstrapOfProcess();
  const auto communicator = std::make_shared<Communicator>(bootstrap);
  REQUIRE(env()->forceDisableNvls);
#if MSCCLPP_HAVE_CUDA
  CHECK_FALSE(isNvlsSupported());
  CHECK_THROWS_WITH_AS(connectNvlsCollectiveOn(DeviceType::GPU, communicator, {0, 1}, 4096),
                       doctest::Contains("NCCL_NVLS_ENABLE"), Error);
#endif
  // Multicast of CPU ranks needs no switch and cannot be disabled.
  CHECK(connectNvlsCollectiveOn(DeviceType::CPU, communicator, {0, 1}, 4096)->bufferSize() == 4096);
  bootstrap->barrier();
}
