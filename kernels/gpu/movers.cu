// The GPU kernels of the collectives that move data.
#include "variants.cuh"

namespace mscclpp::kernels::gpu {

KernelFunction findMover(std::size_t algorithm, int ranks) {
  return findVariant<Backend, Byte, false>(algorithm, ranks);
}

}  // namespace mscclpp::kernels::gpu
