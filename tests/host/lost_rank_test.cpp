// A rank dies without a word: the others' waits end within seconds, with an error that names it.
#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>

#include "mscclpp/host/bootstrap.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/host_semaphore.hpp"
#include "mscclpp/host/memory_semaphore.hpp"
#include "mscclpp/host/symmetric_memory.hpp"
#include "spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

constexpr int mortal = 2;

void namesTheLostRank(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  try {
    call();
    CHECK_MESSAGE(false, "nothing was thrown");
  } catch (const Error& error) {
    CAPTURE(error.what());
    CHECK(error.getErrorCode() == ErrorCode::RemoteError);
    CHECK(std::string(error.what()).find("rank 2") != std::string::npos);
  }
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(15));  // half of what they would wait
}

}  // namespace

TEST_CASE("the waits for a lost rank end, naming it") {
  runAsProcesses(3, "one process loses a peer");
}
TEST_CASE("one process loses a peer" * doctest::skip()) {
  const auto rendezvous = bootstrapOfProcess();
  const auto bootstrap = tcpBootstrapOver(*rendezvous);
  const int rank = bootstrap->getRank();
  Communicator communicator(bootstrap);
  // Signals that will never come, expected of the rank that dies and of one that lives.
  const auto toMortal = communicator.connect(Transport::SharedMemory, (rank == mortal) ? 0 : mortal, rank == 1 ? 1 : 0);
  if (rank == mortal) {
    const auto second = communicator.connect(Transport::SharedMemory, 1, 1);
    const MemoryDevice2DeviceSemaphore kernelSide(communicator, toMortal.get());
    const Host2HostSemaphore hostSide(communicator, second.get());
    bootstrap->barrier();
    rendezvous->barrier();  // what it sent so far would be lost with it, if it has not left yet
    ::_exit(0);             // no destructor says goodbye
  }
  if (rank == 0) {
    const MemoryDevice2DeviceSemaphore semaphore(communicator, toMortal.get());
    auto handle = semaphore.deviceHandle();
    bootstrap->barrier();
    rendezvous->barrier();
    namesTheLostRank([&] {
      CHECK_FALSE(handle.wait());
      communicator.monitor(DeviceType::CPU)->check();
    });
  } else {
    Host2HostSemaphore semaphore(communicator, toMortal.get());
    bootstrap->barrier();
    rendezvous->barrier();
    namesTheLostRank([&] { semaphore.wait(-1); });
  }
  namesTheLostRank([&] { SymmetricMemory(communicator, 4096, DeviceType::CPU); });
  namesTheLostRank([&] { communicator.recvMemory(mortal, 9).get(); });
  namesTheLostRank([&] { communicator.recvMemory(1 - rank, 9).get(); });
  rendezvous->send(std::vector<char>(1), 1 - rank, 1);  // leave together: leaving early is another story
  std::vector<char> token;
  rendezvous->recv(token, 1 - rank, 1);
}
