// All-reduces that send fp8 on a CPU, in the calling thread.
#include "kernels/all_reduce_fp8.hpp"

#include "mscclpp/basic/serial_group.hpp"

namespace mscclpp::kernels::cpu {

namespace {

struct Fp8Backend {
  static constexpr DeviceType where = DeviceType::CPU;
  static constexpr std::size_t capacity = std::size_t{256} * 1024;

  template <class C>
  static int run(const CollectiveState<C>& state, const Fp8Call& call, int /*maxBlocks*/, KernelStart /*start*/) {
    using T = typename C::Element;
    C::run(mscclpp::cpu::SerialGrid(), state.args(call.count), ArraySource<T>(static_cast<const T*>(call.input)),
           ArraySink<T>(static_cast<T*>(call.output)));
    return 0;
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

}  // namespace mscclpp::kernels::cpu
