// 19 on CPU ranks: processes, whose kernel is emulated by threads.
#include "fused.hpp"
#include "mscclpp/emulation/launch.hpp"
#include "mscclpp/host/communicator/communicator.hpp"

using namespace mscclpp;

namespace {

void run(ProcessGroup& group) {
  const auto communicator = std::make_shared<Communicator>(group.connect());
  Executor executor(communicator, Executor::DefaultScratchBufferSize, DeviceType::CPU);
  const ExecutionPlan plan = example::loadOneShot(group.rank());
  const std::vector<float> values = example::valuesOf(group.rank());
  std::vector<float> input(example::count), output(example::count);
  const std::size_t bytes = example::count * sizeof(float);
  const auto launch = [&](const PlanKernel& kernel) {
    plan::withStaticRank<example::OneShot>(group.rank(), [&]<int rank>() {
      emulation::launch<32>({.blocks = kernel.blocks, .threads = 64}, [&](int, const auto& grid) {
        example::scaleReduceRoot<rank>(grid, kernel.args, values.data(), static_cast<float*>(kernel.input),
                                       static_cast<float*>(kernel.output));
      });
    });
  };
  for (int call = 0; call < 3; ++call) {
    executor.execute(group.rank(), input.data(), output.data(), bytes, bytes, DataType::FLOAT32, plan, nullptr, launch);
    example::check(output, group.rank());
  }
  communicator->bootstrap()->barrier();  // no rank frees what the executor has while others still use it
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnRanks(example::ranks, argc, argv, run);
}
