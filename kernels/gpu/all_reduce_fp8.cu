// All-reduces that send fp8 on GPUs.
#include <algorithm>

#include "kernels/all_reduce_fp8.hpp"
#include "mscclpp/kernel.cuh"

namespace mscclpp::kernels::gpu {

namespace {

struct Fp8Backend {
  static constexpr DeviceType where = DeviceType::GPU;
  static constexpr std::size_t capacity = std::size_t{8} << 20;

  template <class C>
  static int run(const CollectiveState<C>& state, const Fp8Call& call, int maxBlocks, KernelStart start) {
    using T = typename C::Element;
    // A warp for each unit of 512 elements, as far as there are blocks.
    constexpr int threads = 256;
    constexpr std::size_t elementsOfBlock = std::size_t{threads} / 32 * 512;
    const auto most = static_cast<std::size_t>(std::min(maxBlocks, mscclpp::maxBlocks));
    const auto blocks = std::clamp<std::size_t>(ceilDivide(call.count, elementsOfBlock), 1, most);
    return static_cast<int>(launch<C>({static_cast<int>(blocks), threads}, call.stream, state.args(call.count),
                                      ArraySource<T>(static_cast<const T*>(call.input)),
                                      ArraySink<T>(static_cast<T*>(call.output)), start));
  }
};

}  // namespace

template <class T>
std::unique_ptr<Fp8Kernels> makeAllReduceFp8(Communicator& communicator, const std::shared_ptr<WaitMonitor>& monitor) {
  return std::make_unique<Fp8KernelsOf<T, Fp8Backend>>(communicator, monitor);
}
template std::unique_ptr<Fp8Kernels> makeAllReduceFp8<float>(Communicator&, const std::shared_ptr<WaitMonitor>&);
template std::unique_ptr<Fp8Kernels> makeAllReduceFp8<f16>(Communicator&, const std::shared_ptr<WaitMonitor>&);
template std::unique_ptr<Fp8Kernels> makeAllReduceFp8<bf16>(Communicator&, const std::shared_ptr<WaitMonitor>&);

}  // namespace mscclpp::kernels::gpu
