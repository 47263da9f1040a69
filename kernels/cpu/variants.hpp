// Runs a collective on a CPU, in the calling thread.
#pragma once

#include "kernels/all_reduce_dispatch.hpp"
#include "mscclpp/basic/serial_group.hpp"

namespace mscclpp::kernels::cpu {

struct Backend : AllVariants {
  static constexpr bool supportsAlgorithm(const AllReduceAlgorithm& algorithm) {
    return algorithm.backends == Backends::CpuAndGpu;
  }

  template <class Collective>
  static int run(const AllReduceCall& call) {
    using T = typename Collective::Element;
    Collective::run(mscclpp::cpu::SerialGrid(), argsFor<Collective>(call),
                    ArraySource<T>(static_cast<const T*>(call.input)), ArraySink<T>(static_cast<T*>(call.output)));
    return 0;
  }
};

/// The same with tracing.
struct TracedBackend : TracedVariants {
  static constexpr bool supportsAlgorithm(const AllReduceAlgorithm& algorithm) {
    return algorithm.backends == Backends::CpuAndGpu;
  }

  template <class Collective>
  static int run(const AllReduceCall& call) {
    using T = typename Collective::Element;
    Traced<Collective>::run(mscclpp::cpu::SerialGrid(), tracedArgsFor<Collective>(call),
                            ArraySource<T>(static_cast<const T*>(call.input)),
                            ArraySink<T>(static_cast<T*>(call.output)));
    return 0;
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

}  // namespace mscclpp::kernels::cpu
