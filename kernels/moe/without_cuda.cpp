// Replaces gpu.cu in a build without the CUDA toolkit.
#include "host/cuda/no_cuda.hpp"
#include "kernels/moe/calls.hpp"

namespace mscclpp::kernels::gpu {

int run(const MoeDispatchCall& /*call*/) {
  mscclpp::detail::noCuda();
}
int run(const MoeCombineCall& /*call*/) {
  mscclpp::detail::noCuda();
}
int run(const MoeLayoutCall& /*call*/) {
  mscclpp::detail::noCuda();
}
bool hasBulkCopies() {
  mscclpp::detail::noCuda();
}
std::size_t l2CacheBytes() {
  mscclpp::detail::noCuda();
}

}  // namespace mscclpp::kernels::gpu
