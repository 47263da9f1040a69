// A rank of a multicast group dies or never comes: the others get an error that names it, and no call of theirs waits for ever. And multicast that is off.
#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "mscclpp/host/env.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/host_buffer.hpp"
#include "mscclpp/host/nvls.hpp"
#include "spawned_ranks.hpp"

#if MSCCLPP_HAVE_CUDA
#include "mscclpp/host/gpu.hpp"
#endif

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

constexpr int mortal = 2;

void fails(ErrorCode code, const std::string& text, const std::function<void()>& call) {
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

TEST_CASE("a rank that dies before memory is attached") {
  runAsProcesses(3, "one process binds without a peer");
}
TEST_CASE("one process binds without a peer" * doctest::skip()) {
  const auto rendezvous = bootstrapOfProcess();
  const auto bootstrap = tcpBootstrapOver(*rendezvous);
  const auto communicator = std::make_shared<Communicator>(bootstrap);
  const auto connection = connectNvlsCollective(communicator, {0, 1, 2}, 4096, DeviceType::CPU);
  const HostBuffer buffer(4096);
  rendezvous->barrier();                           // what it sent so far would be lost with it, if it has not left yet
  if (bootstrap->getRank() == mortal) ::_exit(0);  // no destructor says goodbye
  fails(ErrorCode::RemoteError, "rank 2", [&] { connection->bindAllocatedMemory(buffer.data(), 4096); });
  fails(ErrorCode::RemoteError, "rank 2", [&] {
    connectNvlsCollective(communicator, {0, 1, 2}, 4096, DeviceType::CPU);
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
  if (bootstrap->getRank() != mortal) {
    fails(ErrorCode::Timeout, "rank 2", [&] { connectNvlsCollective(communicator, {0, 1, 2}, 4096, DeviceType::CPU); });
  }
  rendezvous->barrier();  // the absent one lives on until here
}

TEST_CASE("a rank that does not signal") {
  runAsThreads(2, [](std::shared_ptr<Bootstrap> bootstrap) {
    const auto communicator = std::make_shared<Communicator>(bootstrap);
    const auto connection = connectNvlsCollective(communicator, {0, 1}, 4096, DeviceType::CPU);
    const HostBuffer buffer(4096);
    const auto channel = connection->bindAllocatedMemory(buffer.data(), 4096);
    if (bootstrap->getRank() == 0) {
      auto handle = channel.deviceHandle();
      handle.barrier_.waitTimeout = 100'000'000;
      handle.signal();
      CHECK_FALSE(handle.wait());
      fails(ErrorCode::Timeout, "a signal", [&] { communicator->monitor(DeviceType::CPU)->check(); });
    }
    bootstrap->barrier();
  });
}

TEST_CASE("multicast that the environment forbids") {
  for (const auto& [name, value] : {std::pair{"NCCL_NVLS_ENABLE", "0"}, {"MSCCLPP_FORCE_DISABLE_NVLS", "1"}}) {
    CAPTURE(name);
    ::setenv(name, value, 1);
    runAsProcesses(2, "one process may not");
    ::unsetenv(name);
  }
}
TEST_CASE("one process may not" * doctest::skip()) {
  const auto bootstrap = bootstrapOfProcess();
  const auto communicator = std::make_shared<Communicator>(bootstrap);
  REQUIRE(env()->forceDisableNvls);
#if MSCCLPP_HAVE_CUDA
  CHECK_FALSE(isNvlsSupported());
  CHECK_THROWS_WITH_AS(connectNvlsCollective(communicator, {0, 1}, 4096, DeviceType::GPU),
                       doctest::Contains("NCCL_NVLS_ENABLE"), Error);
#endif
  // CPU ranks have no switch that could be off.
  CHECK(connectNvlsCollective(communicator, {0, 1}, 4096, DeviceType::CPU)->bufferSize() == 4096);
  bootstrap->barrier();
}
