// CollectiveState on CPU ranks, as threads and as processes.
#define MSCCLPP_CHECKED 1
#include "collective_state_cases.hpp"
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/basic/wait_error.hpp"
#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

struct Cpu {
  static constexpr DeviceType type = DeviceType::CPU;
  template <class C>
  std::vector<float> run(const typename C::Args& args, const std::vector<float>& input) const {
    std::vector<float> output(input.size());
    const bool succeeded =
        C::run(cpu::SerialGrid(), args, ArraySource<float>(input.data()), ArraySink<float>(output.data()));
    CHECK(succeeded);
    return output;
  }
};

// A checked call with another count is reported by every rank that notices it, as an exception and by check().
void callWithOtherCount(const std::shared_ptr<Bootstrap>& bootstrap) {
  Communicator communicator(bootstrap);
  const CollectiveState<StateAllReduce<Protocol::LL16>> state(communicator, DeviceType::CPU, 1000);
  const std::size_t count = bootstrap->getRank() == 1 ? 200 : 100;
  const std::vector<float> input(count);
  CHECK_THROWS_WITH_AS(Cpu().run<StateAllReduce<Protocol::LL16>>(state.args(count), input),
                       doctest::Contains("all ranks must pass the same count"), InvalidCall);
  try {
    state.check();
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(error.getErrorCode() == ErrorCode::InvalidUsage);
    CHECK(std::string(error.what()).find("with 200") != std::string::npos);
  }
  bootstrap->barrier();
}

}  // namespace

TEST_CASE("collective state: calls of ranks as threads") {
  for (const int ranks : {1, 2, 3})
    runAsThreads(ranks, [](const auto& bootstrap) { callWithStates(bootstrap, Cpu{}); });
}
TEST_CASE("collective state: calls of ranks as processes") {
  runAsProcesses(2, "collective state: one process calls");
}
TEST_CASE("collective state: one process calls" * doctest::skip()) {
  callWithStates(bootstrapOfProcess(), Cpu{});
}
TEST_CASE("collective state: wrong states are an error on all ranks") {
  runAsThreads(3, rejectWrongStates<Cpu>);
}
TEST_CASE("collective state: a call with another count") {
  runAsThreads(2, callWithOtherCount);
}
