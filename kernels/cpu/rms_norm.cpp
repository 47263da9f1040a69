// All-reduces with RMSNorm on a CPU, in the calling thread.
#include "kernels/rms_norm.hpp"

#include "mscclpp/basic/serial_group.hpp"

namespace mscclpp::kernels::cpu {

namespace {

struct RmsNormBackend {
  static constexpr DeviceType where = DeviceType::CPU;
  static constexpr std::size_t capacity = std::size_t{256} * 1024;

  static constexpr int mostPacks = static_cast<int>(mostRmsNormElements / packSize<float>);
  /// A thread holds whole rows, of up to `packs` packs. All use the same scratch.
  template <class T, Pattern pattern, int packs = mostPacks, Quantisation quantisation = Quantisation::None>
  using Collective =
      AllReduceRmsNorm<T, AllReduceRmsNormConfig{
                              .pattern = pattern, .quantisation = quantisation, .packsPerThread = packs}>;

  /// A row takes time that grows with the packs that there may be.
  template <class T, Pattern pattern>
  static int run(const CollectiveState<Collective<T, pattern>>& state, const RmsNormCall& call, int, KernelStart) {
    const std::size_t packs = call.hidden / packSize<T>;
    if constexpr (quantisesRows<T>) {
      if (call.quantisation != Quantisation::None) {
        return visitQuantisation(call.quantisation, [&]<Quantisation quantisation>() {
          runVariant<T, pattern, mostPacks, quantisation>(state, call);
          return 0;
        });
      }
    }
    if (packs <= 64) {
      runVariant<T, pattern, 64>(state, call);
    } else if (packs <= 512) {
      runVariant<T, pattern, 512>(state, call);
    } else {
      runVariant<T, pattern, mostPacks>(state, call);
    }
    return 0;
  }

 private:
  template <class T, Pattern pattern, int packs, Quantisation quantisation = Quantisation::None>
  static void runVariant(const CollectiveState<Collective<T, pattern>>& state, const RmsNormCall& call) {
    using Variant = Collective<T, pattern, packs, quantisation>;
    Variant::run(mscclpp::cpu::SerialGrid(), argsFor<Variant, 0>(state, call),
                 ArraySource<T>(static_cast<const T*>(call.input)), arraysOf<T>(call));
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
