// Plans on CPU ranks, one rank per process, of which one is killed.
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "executor_cases.hpp"
#include "tests/host/ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

/// Calls a plan until an error; the ranks that survive must get one that names the killed rank, soon, and again.
void callUntilKilled(int rank, const std::string& address, const plan::Plan& plan, const Reports& connected) {
  const auto bootstrap = std::make_shared<TcpBootstrap>(rank, plan.ranks);
  bootstrap->initialize(address);
  Executor executor(std::make_shared<Communicator>(bootstrap), 1 << 20, DeviceType::CPU);
  const ExecutionPlan own = executionPlan(plan, rank);
  const auto message = planMessage<float>(plan, rank, 1000, 1);
  std::vector<float> output(message.expected.size());
  const auto call = [&] {
    executor.execute(rank, message.input.data(), output.data(), 4 * message.input.size(), 4 * output.size(),
                     DataType::FLOAT32, own, nullptr);
    expect(output == message.expected, "a call succeeded with a wrong result");
  };
  call();
  connected.add();
  for (int error = 0; error < 2;) {
    const auto start = std::chrono::steady_clock::now();
    try {
      call();
    } catch (const Error& failure) {
      ++error;
      const std::string text = failure.what();
      expect(failure.getErrorCode() == ErrorCode::RemoteError, text);
      expect(text.find("rank 2 failed") != std::string::npos, text);
      expect(secondsSince(start) < soon, "the call took too long");
    }
  }
}

}  // namespace

TEST_CASE("a rank killed between or during calls of a plan is named to the others") {
  for (const plan::Plan& plan :
       {plan::oneShotPacketPlan(3, 2), plan::ringPlan(3), plan::gatherByReadingPlan(3, false)}) {
    const std::string address = "127.0.0.1:" + std::to_string(freePort());
    const Reports connected;
    std::vector<ChildProcess> ranks;
    for (int rank = 0; rank < 3; ++rank)
      ranks.emplace_back([&, rank] { callUntilKilled(rank, address, plan, connected); });
    connected.wait(3);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ranks[2].kill(SIGKILL);
    CHECK(ranks[0].wait() == "");
    CHECK(ranks[1].wait() == "");
    CHECK(ranks[2].wait() == "signal 9");
  }
}
