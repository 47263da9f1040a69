// 14 on CPU ranks: processes, each with a grid of one thread.
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/host/communicator/collective_state.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "problem.hpp"

using namespace mscclpp;

namespace {

using Collective = example::NormCollective<32>;

void normalise(ProcessGroup& group) {
  const int rank = group.rank();
  const int ranks = group.size();
  const example::Problem problem{.tokens = 9, .hidden = 256};
  Communicator communicator(group.connect());
  const CollectiveState<Collective> state(communicator, DeviceType::CPU, problem.elements());

  const auto input = problem.input(rank), residual = problem.residual(), weight = problem.weight();
  std::vector<bf16> newResidual(problem.elements()), normalised(problem.elements());
  std::vector<f8e4m3> quantised(problem.elements());
  std::vector<float> scales(problem.tokens);
  const RmsNormArrays<bf16> arrays{.weight = weight.data(),
                                   .epsilon = example::epsilon,
                                   .residual = residual.data(),
                                   .newResidual = newResidual.data(),
                                   .normalised = normalised.data(),
                                   .quantised = quantised.data(),
                                   .scales = scales.data(),
                                   .scale = nullptr};
  Collective::Args args = state.args(problem.elements());
  args.hidden = problem.hidden;
  for (int call = 0; call < 3; ++call) {
    std::fill(normalised.begin(), normalised.end(), narrow<bf16>(0.0f));
    Collective::run(cpu::SerialGrid(), args, ArraySource<bf16>(input.data()), arrays);
    state.check();
    problem.check(newResidual, normalised, quantised, scales, ranks);
    example::requireSameBits(*communicator.bootstrap(), quantised);
  }
  if (rank == 0) std::printf("all-reduce, residual, RMSNorm and fp8 over %d CPU ranks: right\n", ranks);
  communicator.bootstrap()->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnRanks(4, argc, argv, normalise);
}
