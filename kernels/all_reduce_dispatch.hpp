// Selects a compiled variant from run-time values: the implementation of findAllReduce() for both backends.
#pragma once

#include <utility>

#include "all_reduce_algorithms.hpp"
#include "all_reduce_call.hpp"
#include "mscclpp/collective/all_reduce.hpp"
#include "mscclpp/collective/traced.hpp"

namespace mscclpp::kernels {

/// The arguments of the collective for a call.
template <class Collective>
typename Collective::Args argsFor(const AllReduceCall& call) {
  return {.team = {call.rank, call.ranks},
          .window = makeWindow<Collective::configuration.ranks>(call.window, call.ranks),
          .epochs = {call.epochs},
          .scratch =
              Collective::scratchFor(call.maxBytes / sizeof(typename Collective::Element), call.ranks, call.pipeline),
          .count = call.count,
          .wait = call.wait};
}

/// The same for a traced collective.
template <class Collective>
TracedArgs<typename Collective::Args> tracedArgsFor(const AllReduceCall& call) {
  return {argsFor<Collective>(call), call.trace};
}

/// Backend: static constexpr bool supportsAlgorithm(const AllReduceAlgorithm&), supports<T, Op>, and template <class
/// Collective> static int run(const AllReduceCall&).
template <class Backend, class T, class Op, std::size_t index>
AllReduceFunction variantFor(int ranks) {
  constexpr AllReduceAlgorithm algorithm = allReduceAlgorithms[index];
  if constexpr (!Backend::supportsAlgorithm(algorithm)) {
    return nullptr;
  } else if constexpr (hasAllVariants<T, Op>) {
    AllReduceFunction found = nullptr;
    const auto tryVariant = [&]<int Ranks>(std::integral_constant<int, Ranks>) {
      constexpr AllReduceConfig config{algorithm.config.protocol, algorithm.config.pattern, Ranks,
                                       algorithm.config.lookahead};
      if (Ranks == ranks || Ranks == 0) found = &Backend::template run<AllReduce<T, Op, config>>;
    };
    tryVariant(std::integral_constant<int, 0>{});
    [&]<std::size_t... i>(std::index_sequence<i...>) {
      (tryVariant(std::integral_constant<int, fixedTeamSizes[i]>{}), ...);
    }
    (std::make_index_sequence<fixedTeamSizes.size()>{});
    return found;
  } else if constexpr (compiledForEveryType(algorithm)) {
    return &Backend::template run<AllReduce<T, Op, algorithm.config>>;
  } else {
    return nullptr;
  }
}

template <class Backend, class T>
AllReduceFunction findVariant(std::size_t algorithm, ReduceOp op, int ranks) {
  return visit(
      op,
      [&](auto tag) {
        using Op = typename decltype(tag)::Type;
        AllReduceFunction found = nullptr;
        if constexpr (Backend::template supports<T, Op>) {
          [&]<std::size_t... i>(std::index_sequence<i...>) {
            ((i == algorithm ? void(found = variantFor<Backend, T, Op, i>(ranks)) : void()), ...);
          }
          (std::make_index_sequence<allReduceAlgorithms.size()>{});
        }
        return found;
      },
      [] { return AllReduceFunction{nullptr}; });
}

/// The types and operators that have all variants.
struct AllVariants {
  template <class T, class Op>
  static constexpr bool supports = true;
};
struct TracedVariants {
  template <class T, class Op>
  static constexpr bool supports = hasTracedVariant<T, Op>;
};

}  // namespace mscclpp::kernels
