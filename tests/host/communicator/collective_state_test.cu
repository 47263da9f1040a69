// CollectiveState on GPUs, one process and GPU per rank.
#define MSCCLPP_CHECKED 1
#include "collective_state_cases.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "mscclpp/kernel.cuh"
#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

struct Gpu {
  static constexpr DeviceType type = DeviceType::GPU;
  template <class C>
  std::vector<float> run(const typename C::Args& args, const std::vector<float>& input) const {
    const GpuBuffer<float> from(input.size() + 1);
    const GpuBuffer<float> to(input.size() + 1);
    if (!input.empty()) gpuMemcpy(from.data(), input.data(), input.size());
    MSCCLPP_CUDATHROW(
        (launch<C>({1, 64}, nullptr, args, ArraySource<float>(from.data()), ArraySink<float>(to.data()))));
    MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
    std::vector<float> output(input.size());
    if (!output.empty()) gpuMemcpy(output.data(), static_cast<const float*>(to.data()), output.size());
    return output;
  }
};

// The record that the kernel leaves makes check() throw.
void callWithOtherCount(const std::shared_ptr<Bootstrap>& bootstrap) {
  Communicator communicator(bootstrap);
  using C = StateAllReduce<Protocol::LL16>;
  const CollectiveState<C> state(communicator, DeviceType::GPU, 1000);
  const std::vector<float> input(bootstrap->getRank() == 1 ? 200 : 100);
  CHECK(Gpu().run<C>(state.args(input.size()), input) == std::vector<float>(input.size()));  // zeros: not written
  try {
    state.check();
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(error.getErrorCode() == ErrorCode::InvalidUsage);
    CHECK(std::string(error.what()).find("all ranks must pass the same count") != std::string::npos);
  }
  bootstrap->barrier();
}

}  // namespace

TEST_CASE("collective state: calls on GPUs") {
  runAsProcesses(2, "collective state: one GPU calls");
}
TEST_CASE("collective state: one GPU calls" * doctest::skip()) {
  const auto bootstrap = bootstrapOfProcess();
  MSCCLPP_CUDATHROW(cudaSetDevice(bootstrap->getRank()));
  callWithStates(bootstrap, Gpu{});
  rejectWrongStates<Gpu>(bootstrap);
  callWithOtherCount(bootstrap);
}
