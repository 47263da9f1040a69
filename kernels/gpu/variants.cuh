// Runs a collective on a GPU: enqueues the generic kernel.
#pragma once

#include "kernels/joined_access.hpp"
#include "kernels/kernel_lookup.hpp"
#include "kernels/scaled_source.hpp"
#include "mscclpp/kernel.cuh"

namespace mscclpp::kernels::gpu {

struct Backend {
  template <class T>
  static constexpr bool supports(const Algorithm& algorithm) {
    return !hasReduction(algorithm.collective) || isCompiledFor<T>(algorithm);
  }
  template <class T>
  static constexpr bool isSpecialized(const Algorithm& algorithm) {
    return algorithm.variants == Variants::Specialized && (!hasReduction(algorithm.collective) || isCommonType<T>);
  }

  template <class T, std::size_t index, int ranks>
  static int run(const KernelCall& call) {
    constexpr Algorithm algorithm = algorithmTable[index];
    const auto* input = static_cast<const T*>(call.input);
    auto* output = static_cast<T*>(call.output);
    // Aligned arrays of whole packs are common, and have faster kernels. Ranks may choose differently: all kernels of
    // an algorithm use the scratch alike, and compute the same bits.
    const bool isAligned = isAlignedArray(input, call.count) && isAlignedArray(output, call.count) &&
                           call.receivedCount % packSize<T> == 0;
    if constexpr (algorithm.protocol == Protocol::Bulk) {
      return enqueue<CollectiveOf<index, ranks, T>>(call, ArraySource<T>(input), ArraySink<T>(output));
    } else if constexpr (!hasReduction(algorithm.collective)) {
      if (isAligned) {
        return enqueue<CollectiveOf<index, ranks, T>>(call, AlignedArraySource<T>(input), AlignedArraySink<T>(output));
      }
      return enqueue<CollectiveOf<index, 0, T>>(call, ArraySource<T>(input), ArraySink<T>(output));
    } else {
      if constexpr (isSpecialized<T>(algorithm)) {
        if (isAligned && isPlainSum(call.reduction)) {
          return enqueue<CollectiveOf<index, ranks, T, Sum>>(call, AlignedArraySource<T>(input),
                                                             AlignedArraySink<T>(output));
        }
      }
      return enqueue<CollectiveOf<index, 0, T, RuntimeOp>>(call, scaledSource<T>(call), ArraySink<T>(output));
    }
  }

 private:
  template <class Collective, class Source, class Sink>
  static int enqueue(const KernelCall& call, const Source& source, const Sink& sink) {
    return static_cast<int>(
        launch<Collective>(call.shape, call.stream, argsFor<Collective>(call), source, sink, call.start));
  }
};

/// The general kernels with tracing.
struct TracedBackend {
  template <class T>
  static constexpr bool supports(const Algorithm& algorithm) {
    return isTracedFor<T>(algorithm);
  }
  template <class T>
  static constexpr bool isSpecialized(const Algorithm&) {
    return false;
  }

  template <class T, std::size_t index, int ranks>
  static int run(const KernelCall& call) {
    using Collective = CollectiveOf<index, ranks, T, RuntimeOp>;
    const TracedArgs<typename Collective::Args> args{argsFor<Collective>(call), call.trace};
    return static_cast<int>(launch<Traced<Collective>>(call.shape, call.stream, args, scaledSource<T>(call),
                                                       ArraySink<T>(static_cast<T*>(call.output)), call.start));
  }
};

/// The general kernels for joined calls: of the algorithms that take short messages, with one of them for each size.
struct JoinedBackend {
  template <class T>
  static constexpr bool supports(const Algorithm& algorithm) {
    const bool isForShort = algorithm.protocol == Protocol::Sentinel && algorithm.pattern == Pattern::OneShot;
    const bool isForLonger = algorithm.protocol == Protocol::LL128 && algorithm.pattern == Pattern::TwoShot;
    return isJoined(algorithm.collective) && isCommonType<T> && (isForShort || isForLonger);
  }
  template <class T>
  static constexpr bool isSpecialized(const Algorithm&) {
    return false;
  }

  template <class T, std::size_t index, int ranks>
  static int run(const KernelCall& call) {
    using Collective = CollectiveOf<index, ranks, T, RuntimeOp>;
    return static_cast<int>(launch<Collective>(call.shape, call.stream, argsFor<Collective>(call),
                                               joinedSource<T>(call), joinedSink<T>(call), call.start));
  }
};

template <class T>
KernelFunction findReduction(std::size_t algorithm, int ranks) {
  return findVariant<Backend, T, true>(algorithm, ranks);
}
template <class T>
KernelFunction findTracedReduction(std::size_t algorithm, int ranks) {
  return findVariant<TracedBackend, T, true>(algorithm, ranks);
}
template <class T>
KernelFunction findJoinedReduction(std::size_t algorithm, int ranks) {
  return findVariant<JoinedBackend, T, true>(algorithm, ranks);
}

}  // namespace mscclpp::kernels::gpu
