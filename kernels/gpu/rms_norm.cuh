// All-reduces with RMSNorm on GPUs: the choice of a kernel, and its launch.
#pragma once

#include "kernels/rms_norm.hpp"
#include "mscclpp/kernel.cuh"

namespace mscclpp::kernels::gpu {

struct RmsNormBackend {
  static constexpr DeviceType where = DeviceType::GPU;
  static constexpr std::size_t capacity = std::size_t{8} << 20;

  /// Rows of up to `packs` packs for each thread (0: of up to mostRmsNormElements elements). All use the same scratch.
  template <class T, Pattern pattern, int ranks = 0, int packs = 0, Quantisation quantisation = Quantisation::None>
  using Collective =
      AllReduceRmsNorm<T,
                       AllReduceRmsNormConfig{
                           .pattern = pattern, .ranks = ranks, .quantisation = quantisation, .packsPerThread = packs}>;
  static_assert(Collective<float, Pattern::OneShot>::maxHidden == mostRmsNormElements);
  /// Rows of this length have kernels that load ahead.
  static constexpr int fewPacks = 2;
  template <class T>
  static constexpr std::size_t shortRow =
      std::size_t{fewPacks} * Collective<T, Pattern::OneShot>::maxBlockThreads* packSize<T>;

  template <class T, Pattern pattern>
  static int run(const CollectiveState<Collective<T, pattern>>& state, const RmsNormCall& call, int maxBlocks,
                 KernelStart start) {
    if constexpr (quantisesRows<T>) {
      if (call.quantisation != Quantisation::None) return runQuantised<T, pattern>(state, call, maxBlocks, start);
    }
    const auto enqueue = [&]<int ranks, int packs>() {
      return launchVariant<T, pattern, ranks, packs>(state, call, maxBlocks, start);
    };
    if (call.hidden > shortRow<T>) {
      return enqueue.template operator()<0, 0>();
    }
    switch (state.args(0).team.size()) {
      case 2:
        return enqueue.template operator()<2, fewPacks>();
      case 4:
        return enqueue.template operator()<4, fewPacks>();
      case 8:
        return enqueue.template operator()<8, fewPacks>();
      default:
        return enqueue.template operator()<0, fewPacks>();
    }
  }

  /// Calls with a quantisation: for any number of ranks, compiled in files of their own (rms_norm_quantised.cuh).
  template <class T, Pattern pattern>
  static int runQuantised(const CollectiveState<Collective<T, pattern>>& state, const RmsNormCall& call, int maxBlocks,
                          KernelStart start);

 private:
  template <class T, Pattern pattern, int ranks, int packs, Quantisation quantisation = Quantisation::None>
  static int launchVariant(const CollectiveState<Collective<T, pattern>>& state, const RmsNormCall& call, int maxBlocks,
                           KernelStart start) {
    using Variant = Collective<T, pattern, ranks, packs, quantisation>;
    const auto args = argsFor<Variant, ranks>(state, call);
    // At most one block for each multiprocessor: the measure of GpuBudget.
    const LaunchShape shape = Variant::shapeFor(call.rows, call.hidden, maxBlocks);
    return static_cast<int>(launch<Variant>(
        shape, call.stream, args, AlignedArraySource<T>(static_cast<const T*>(call.input)), arraysOf<T>(call), start));
  }
};

template <class T>
std::unique_ptr<RmsNormKernels> makeRmsNorm(Communicator& communicator, const std::shared_ptr<WaitMonitor>& monitor) {
  return std::make_unique<RmsNormKernelsOf<T, RmsNormBackend>>(communicator, monitor);
}

}  // namespace mscclpp::kernels::gpu
