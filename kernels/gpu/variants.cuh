// How a collective runs on a GPU: the generic kernel, enqueued.
#pragma once

#include "../all_reduce_find.hpp"
#include "mscclpp/kernel.cuh"

namespace mscclpp::kernels::gpu {

struct Backend {
  static constexpr bool offers(const AllReduceAlgorithm& algorithm) { return algorithm.onGpu; }

  template <class Collective>
  static int run(const AllReduceCall& call) {
    using T = typename Collective::Element;
    return static_cast<int>(launch<Collective>(
        LaunchShape{call.shape.blocks, call.shape.threads}, call.stream, argsFor<Collective::configuration.ranks>(call),
        LoadFrom<T>(static_cast<const T*>(call.input)), StoreTo<T>(static_cast<T*>(call.output))));
  }
};

template <class T>
AllReduceFunction findAllReduce(std::size_t algorithm, ReduceOp op, int ranks) {
  return find<Backend, T>(algorithm, op, ranks);
}

}  // namespace mscclpp::kernels::gpu
