// 18 on CPU ranks: processes, in which an interpreter executes the plan.
#include "mscclpp/host/communicator/communicator.hpp"
#include "ring.hpp"

using namespace mscclpp;

namespace {

void gather(ProcessGroup& group) {
  const auto communicator = std::make_shared<Communicator>(group.connect());
  Executor executor(communicator, Executor::DefaultScratchBufferSize, DeviceType::CPU);
  const ExecutionPlan plan = example::loadRing(group.rank(), group.size());
  const std::vector<float> input = example::inputOf(group.rank());
  std::vector<float> output(input.size() * static_cast<std::size_t>(group.size()));
  executor.execute(group.rank(), input.data(), output.data(), input.size() * sizeof(float),
                   output.size() * sizeof(float), DataType::FLOAT32, plan, nullptr);
  example::check(output, group.rank(), group.size());
  communicator->bootstrap()->barrier();  // no rank frees what the executor has while others still use it
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnRanks(4, argc, argv, gather);
}
