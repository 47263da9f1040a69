// The CPU variants of the collectives that move data.
#include "variants.hpp"

namespace mscclpp::kernels::cpu {

KernelFunction findMover(std::size_t algorithm, int ranks) {
  return findVariant<Backend, Byte, false>(algorithm, ranks);
}

}  // namespace mscclpp::kernels::cpu
