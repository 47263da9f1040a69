// 13 on CPU ranks: processes, each with a grid of one thread.
#include "mscclpp/basic/serial_group.hpp"
#include "small_sums.hpp"

using namespace mscclpp;

namespace {

void reduce(ProcessGroup& group) {
  const auto communicator = std::make_shared<Communicator>(group.connect());
  const AlgorithmCollection collection = example::makeCollection(
      DeviceType::CPU,
      [](const example::SmallSums::Args& args, const float* input, float* output, LaunchShape, CUstream_st*) {
        const bool isDone =
            example::SmallSums::run(cpu::SerialGrid(), args, ArraySource<float>(input), ArraySink<float>(output));
        example::require(isDone, "a wait failed");
      });
  for (const example::Call& call : example::calls) {
    std::vector<float> input(call.count), output(call.count);
    for (std::size_t i = 0; i < call.count; ++i) input[i] = example::inputAt(i, group.rank());
    const auto selected =
        example::allReduce(collection, communicator, input.data(), output.data(), call.count, call.op, nullptr);
    example::check(call, selected, output, group.rank(), group.size());
  }
  communicator->bootstrap()->barrier();  // no rank frees its scratch while others still read it
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnRanks(4, argc, argv, reduce);
}
