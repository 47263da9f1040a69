// 05 on CPU ranks: processes, each with a grid of one thread.
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/host/communicator/collective_state.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "problem.hpp"

using namespace mscclpp;

namespace {

void layer(ProcessGroup& group) {
  const int rank = group.rank();
  const int ranks = group.size();
  const example::Problem problem{.tokens = 7, .width = 101, .depth = 16};
  Communicator communicator(group.connect());
  const CollectiveState<example::Collective> state(communicator, DeviceType::CPU, problem.elements());

  GridBarrier barrier{};
  const std::vector<float> input = problem.input(rank), weight = problem.weight(rank), residual = problem.residual(),
                           gain = problem.gain();
  std::vector<float> hidden(problem.elements()), output(problem.elements());
  const example::Layer layer{problem.tokens,  problem.width, problem.depth, input.data(), weight.data(),
                             residual.data(), gain.data(),   hidden.data(), output.data()};

  const example::Collective::Args args = state.args(problem.elements());
  // Epochs advance in the memory of the state, so calls need no set-up in between.
  for (int call = 0; call < 3; ++call) {
    std::fill(output.begin(), output.end(), 0.0f);
    example::runLayer(cpu::SerialGrid(), args, layer, barrier);
    state.check();
    problem.check(output, ranks);
    example::requireSameBits(*communicator.bootstrap(), output);
  }
  if (rank == 0) std::printf("linear layer, all-reduce, residual and RMSNorm over %d CPU ranks: right\n", ranks);
  communicator.bootstrap()->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnRanks(4, argc, argv, layer);
}
