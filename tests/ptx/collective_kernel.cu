// The generic kernel of all collectives: its body, which nvcc's host pass leaves out, is in the device code.
#include "mscclpp/collective_kernel.cuh"

using namespace mscclpp;

struct Increment {
  struct Args {
    unsigned int* word;
  };
  static constexpr int maxBlockThreads = 128;

  template <class Grid>
  __device__ static void run(const Grid&, const Args& args, unsigned int source, unsigned int sink) {
    atomicAdd(args.word, source + sink);
  }
};

auto* instance = &collectiveKernel<Increment, unsigned int, unsigned int>;
// __global__ void collectiveKernel(
// PTX: griddepcontrol\.wait
// PTX: griddepcontrol\.launch_dependents
// PTX: (atom|red)\.global\.add\.u32
