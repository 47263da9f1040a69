// How a collective runs on a GPU: the generic kernel, enqueued.
#pragma once

#include "../all_reduce_find.hpp"
#include "mscclpp/kernel.cuh"

namespace mscclpp::kernels::gpu {

struct Backend : ServesAll {
  static constexpr bool offers(const AllReduceAlgorithm& algorithm) { return algorithm.onGpu; }

  template <class Collective>
  static int run(const AllReduceCall& call) {
    using T = typename Collective::Element;
    const auto* input = static_cast<const T*>(call.input);
    auto* output = static_cast<T*>(call.output);
    // Whole packs have a kernel of their own where every microsecond counts.
    if constexpr (hasEveryVariant<T, typename Collective::Operator>) {
      if (isWholePacks(input, call.count) && isWholePacks(output, call.count)) {
        return enqueue<Collective>(call, LoadPacks<T>(input), StorePacks<T>(output));
      }
    }
    return enqueue<Collective>(call, LoadFrom<T>(input), StoreTo<T>(output));
  }

 private:
  template <class Collective, class Source, class Sink>
  static int enqueue(const AllReduceCall& call, const Source& source, const Sink& sink) {
    return static_cast<int>(
        launch<Collective>(call.shape, call.stream, argsFor<Collective::configuration.ranks>(call), source, sink));
  }
};

/// The same, recorded: for any element alignment only, since a picture needs no last percent.
struct TracedBackend : ServesTraced {
  static constexpr bool offers(const AllReduceAlgorithm& algorithm) { return algorithm.onGpu; }

  template <class Collective>
  static int run(const AllReduceCall& call) {
    using T = typename Collective::Element;
    return static_cast<int>(launch<Traced<Collective>>(
        call.shape, call.stream, tracedArgsFor<Collective::configuration.ranks>(call),
        LoadFrom<T>(static_cast<const T*>(call.input)), StoreTo<T>(static_cast<T*>(call.output))));
  }
};

template <class T>
AllReduceFunction findTracedAllReduce(std::size_t algorithm, ReduceOp op, int ranks) {
  return find<TracedBackend, T>(algorithm, op, ranks);
}

template <class T>
AllReduceFunction findAllReduce(std::size_t algorithm, ReduceOp op, int ranks) {
  return find<Backend, T>(algorithm, op, ranks);
}

}  // namespace mscclpp::kernels::gpu
