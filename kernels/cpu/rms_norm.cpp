// All-reduces with RMSNorm on a CPU, in the calling thread.
#include "kernels/rms_norm.hpp"

#include "mscclpp/basic/serial_group.hpp"

namespace mscclpp::kernels::cpu {

namespace {

struct RmsNormBackend {
  static constexpr DeviceType where = DeviceType::CPU;
  static constexpr std::size_t capacity = std::size_t{256} * 1024;

  /// A thread holds whole rows.
  template <class T, Pattern pattern>
  using Collective = AllReduceRmsNorm<T, AllReduceRmsNormConfig{
                                             .pattern = pattern,
                                             .packsPerThread = static_cast<int>(mostRmsNormElements / packSize<T>)}>;

  template <class T, Pattern pattern>
  static int run(const CollectiveState<Collective<T, pattern>>& state, const RmsNormCall& call, int, KernelStart) {
    auto args = state.args(call.rows * call.hidden);
    args.hidden = call.hidden;
    Collective<T, pattern>::run(mscclpp::cpu::SerialGrid(), args, ArraySource<T>(static_cast<const T*>(call.input)),
                                arraysOf<T>(call));
    return 0;
  }
};

}  // namespace

template <class T>
std::unique_ptr<RmsNormKernels> makeRmsNorm(Communicator& communicator, const std::shared_ptr<WaitMonitor>& monitor) {
  return std::make_unique<RmsNormKernelsOf<T, RmsNormBackend>>(communicator, monitor);
}
template std::unique_ptr<RmsNormKernels> makeRmsNorm<float>(Communicator&, const std::shared_ptr<WaitMonitor>&);
template std::unique_ptr<RmsNormKernels> makeRmsNorm<f16>(Communicator&, const std::shared_ptr<WaitMonitor>&);
template std::unique_ptr<RmsNormKernels> makeRmsNorm<bf16>(Communicator&, const std::shared_ptr<WaitMonitor>&);

}  // namespace mscclpp::kernels::cpu
