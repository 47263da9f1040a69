// Runs a collective on a GPU: enqueues the generic kernel.
#pragma once

#include "kernels/all_reduce_dispatch.hpp"
#include "mscclpp/kernel.cuh"

namespace mscclpp::kernels::gpu {

struct Backend : AllVariants {
  static constexpr bool supportsAlgorithm(const AllReduceAlgorithm&) { return true; }

  template <class Collective>
  static int run(const AllReduceCall& call) {
    using T = typename Collective::Element;
    const auto* input = static_cast<const T*>(call.input);
    auto* output = static_cast<T*>(call.output);
    if constexpr (hasAllVariants<T, typename Collective::Operator>) {
      // Common types have a faster kernel for aligned arrays of whole packs. Other arrays are rare: for them, the
      // kernel for any number of ranks serves, which uses the same scratch.
      if (isAlignedArray(input, call.count) && isAlignedArray(output, call.count)) {
        return enqueue<Collective>(call, AlignedArraySource<T>(input), AlignedArraySink<T>(output));
      }
      return enqueue<ForAnyRanks<Collective>>(call, ArraySource<T>(input), ArraySink<T>(output));
    } else {
      return enqueue<Collective>(call, ArraySource<T>(input), ArraySink<T>(output));
    }
  }

 private:
  template <class Collective>
  using ForAnyRanks = AllReduce<typename Collective::Element, typename Collective::Operator,
                                AllReduceConfig{.protocol = Collective::configuration.protocol,
                                                .pattern = Collective::configuration.pattern,
                                                .lookahead = Collective::configuration.lookahead}>;

  template <class Collective, class Source, class Sink>
  static int enqueue(const AllReduceCall& call, const Source& source, const Sink& sink) {
    return static_cast<int>(launch<Collective>(call.shape, call.stream, argsFor<Collective>(call), source, sink));
  }
};

/// The same with tracing; without a faster kernel for aligned arrays.
struct TracedBackend : TracedVariants {
  static constexpr bool supportsAlgorithm(const AllReduceAlgorithm&) { return true; }

  template <class Collective>
  static int run(const AllReduceCall& call) {
    using T = typename Collective::Element;
    return static_cast<int>(launch<Traced<Collective>>(call.shape, call.stream, tracedArgsFor<Collective>(call),
                                                       ArraySource<T>(static_cast<const T*>(call.input)),
                                                       ArraySink<T>(static_cast<T*>(call.output))));
  }
};

template <class T>
AllReduceFunction findTracedAllReduce(std::size_t algorithm, ReduceOp op, int ranks) {
  return findVariant<TracedBackend, T>(algorithm, op, ranks);
}

template <class T>
AllReduceFunction findAllReduce(std::size_t algorithm, ReduceOp op, int ranks) {
  return findVariant<Backend, T>(algorithm, op, ranks);
}

}  // namespace mscclpp::kernels::gpu
