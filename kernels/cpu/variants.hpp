// How a collective runs on a CPU: in the calling thread, which is the rank.
#pragma once

#include "../all_reduce_find.hpp"
#include "mscclpp/basic/serial_group.hpp"

namespace mscclpp::kernels::cpu {

struct Backend : ServesAll {
  static constexpr bool offers(const AllReduceAlgorithm& algorithm) { return algorithm.onCpu; }

  template <class Collective>
  static int run(const AllReduceCall& call) {
    using T = typename Collective::Element;
    Collective::run(mscclpp::cpu::SerialGrid(), argsFor<Collective::configuration.ranks>(call),
                    LoadFrom<T>(static_cast<const T*>(call.input)), StoreTo<T>(static_cast<T*>(call.output)));
    return 0;
  }
};

/// The same, recorded.
struct TracedBackend : ServesTraced {
  static constexpr bool offers(const AllReduceAlgorithm& algorithm) { return algorithm.onCpu; }

  template <class Collective>
  static int run(const AllReduceCall& call) {
    using T = typename Collective::Element;
    Traced<Collective>::run(mscclpp::cpu::SerialGrid(), tracedArgsFor<Collective::configuration.ranks>(call),
                            LoadFrom<T>(static_cast<const T*>(call.input)), StoreTo<T>(static_cast<T*>(call.output)));
    return 0;
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

}  // namespace mscclpp::kernels::cpu
