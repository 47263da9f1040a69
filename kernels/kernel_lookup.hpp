// The types of the compiled collectives, their arguments, and the selection of a kernel by run-time values: common to
// both backends.
#pragma once

#include <utility>

#include "algorithms.hpp"
#include "exchange_call.hpp"
#include "kernel_call.hpp"
#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/collective/all_gather.hpp"
#include "mscclpp/collective/all_reduce.hpp"
#include "mscclpp/collective/all_to_all.hpp"
#include "mscclpp/collective/broadcast.hpp"
#include "mscclpp/collective/exchange.hpp"
#include "mscclpp/collective/gather.hpp"
#include "mscclpp/collective/joined_arrays.hpp"
#include "mscclpp/collective/reduce.hpp"
#include "mscclpp/collective/reduce_scatter.hpp"
#include "mscclpp/collective/reduce_scatter_v.hpp"
#include "mscclpp/collective/scatter.hpp"
#include "mscclpp/collective/send_receive.hpp"
#include "mscclpp/collective/traced.hpp"

namespace mscclpp::kernels {

/// What collectives without a reduction are compiled for: they move bytes, whatever their elements are.
using Byte = std::uint8_t;

namespace detail {

template <std::size_t index, int ranks, class T, class Op>
auto collectiveTag() {
  constexpr Algorithm algorithm = algorithmTable[index];
  constexpr int lookahead = 2;
  constexpr CollectiveConfig config{algorithm.protocol, ranks, lookahead, algorithm.link};
  if constexpr (algorithm.collective == CollectiveType::AllReduce) {
    return TypeTag<mscclpp::AllReduce<
        T, Op, AllReduceConfig{algorithm.protocol, algorithm.pattern, ranks, lookahead, algorithm.link}>>{};
  } else if constexpr (algorithm.collective == CollectiveType::ReduceScatter) {
    return TypeTag<mscclpp::ReduceScatter<T, Op, config>>{};
  } else if constexpr (algorithm.collective == CollectiveType::ReduceScatterV) {
    return TypeTag<mscclpp::ReduceScatterV<T, Op, config>>{};
  } else if constexpr (algorithm.collective == CollectiveType::Reduce) {
    return TypeTag<mscclpp::Reduce<T, Op, config>>{};
  } else if constexpr (algorithm.collective == CollectiveType::AllGather) {
    return TypeTag<mscclpp::AllGather<T, config>>{};
  } else if constexpr (algorithm.collective == CollectiveType::AllToAll) {
    return TypeTag<mscclpp::AllToAll<T, config>>{};
  } else if constexpr (algorithm.collective == CollectiveType::Broadcast) {
    return TypeTag<mscclpp::Broadcast<T, config>>{};
  } else if constexpr (algorithm.collective == CollectiveType::Gather) {
    return TypeTag<mscclpp::Gather<T, config>>{};
  } else if constexpr (algorithm.collective == CollectiveType::Scatter) {
    return TypeTag<mscclpp::Scatter<T, config>>{};
  } else {
    return TypeTag<mscclpp::SendReceive<T, config>>{};
  }
}

/// Calls f.template operator()<i>() for i == index.
template <class F>
void visitIndex(std::size_t index, const F& f) {
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    ((i == index ? f.template operator()<i>() : void()), ...);
  }
  (std::make_index_sequence<algorithmTable.size()>{});
}

}  // namespace detail

/// The collective of an algorithm, for `ranks` ranks (0: any number), elements T and, if it reduces, operator Op.
template <std::size_t index, int ranks, class T, class Op = Sum>
using CollectiveOf = typename decltype(detail::collectiveTag<index, ranks, T, Op>())::Type;

/// The arguments of the collective for a call.
template <class Collective>
typename Collective::Args argsFor(const KernelCall& call) {
  constexpr int ranks = Collective::configuration.ranks;
  typename Collective::Args args{};
  args.team = Team<ranks>(call.rank, call.ranks);
  args.window = makeWindow<ranks>(call.window, call.ranks);
  args.epochs = {call.epochs};
  args.scratch =
      Collective::scratchFor(call.capacity / sizeof(typename Collective::Element), call.ranks, call.pipeline);
  args.count = call.count;
  args.wait = call.wait;
  if constexpr (requires { args.op.op; }) args.op = {call.reduction.op};
  if constexpr (requires { args.root; }) args.root = call.root;
  if constexpr (requires { args.outputs; }) args.outputs = makeWindow<ranks>(call.outputs, call.ranks);
  if constexpr (requires { args.counts; }) {
    for (int r = 0; r < call.ranks; ++r) {
      args.counts[r] = call.counts[r];
      args.offsets[r] = call.offsets[r];
    }
  }
  if constexpr (requires { args.destination; }) {
    args.destination = call.destination;
    args.origin = call.origin;
    args.receivedCount = call.receivedCount;
  }
  return args;
}

/// The exchange of a backend, and its arguments for a call. algorithms: those of SendReceive that the backend has, as
/// indices in algorithmTable.
template <std::size_t... algorithms>
struct ExchangeKernel {
  static constexpr std::size_t capacity = MessageList::capacity;
  using Type = Exchange<0, capacity, typename CollectiveOf<algorithms, 0, Byte>::Messages...>;

  static typename Type::Args argsFor(const ExchangeCall& call) {
    typename Type::Args args{};
    args.team = Team<0>(call.rank, call.ranks);
    args.window = makeWindow<0>(call.window, call.ranks);
    args.wait = call.wait;
    args.pairCount = call.list.pairCount;
    for (int p = 0; p < call.list.pairCount; ++p) args.pairs[p] = call.list.pairs[static_cast<std::size_t>(p)];
    for (int m = 0; m < call.list.count; ++m) {
      const MessageList::Message& message = call.list.messages[static_cast<std::size_t>(m)];
      args.counts[m] = message.bytes;
      std::uint8_t protocol = 0;
      ((message.algorithm == algorithms ? void(args.protocols[m] = protocol) : void(), ++protocol), ...);
    }
    (setScratch<algorithms>(args, call), ...);
    return args;
  }
  /// The sources and sinks of the messages: arrays that are accessed by these types.
  template <template <class> class Source>
  static auto sourcesFor(const ExchangeCall& call) {
    MessageArrays<Source<Byte>, const Byte, capacity> sources{};
    for (int m = 0; m < call.list.count; ++m)
      sources.data[m] = static_cast<const Byte*>(call.list.messages[static_cast<std::size_t>(m)].input);
    return sources;
  }
  template <template <class> class Sink>
  static auto sinksFor(const ExchangeCall& call) {
    MessageArrays<Sink<Byte>, Byte, capacity> sinks{};
    for (int m = 0; m < call.list.count; ++m)
      sinks.data[m] = static_cast<Byte*>(call.list.messages[static_cast<std::size_t>(m)].output);
    return sinks;
  }
  /// The same for messages that may be joined.
  static auto joinedSourcesFor(const ExchangeCall& call) {
    return joinedFor(call, JoinedSources<Byte, capacity>{},
                     [](const MessageList::Message& message) { return static_cast<const Byte*>(message.input); });
  }
  static auto joinedSinksFor(const ExchangeCall& call) {
    return joinedFor(call, JoinedSinks<Byte, capacity>{},
                     [](const MessageList::Message& message) { return static_cast<Byte*>(message.output); });
  }

 private:
  template <class Arrays, class DataOf>
  static Arrays joinedFor(const ExchangeCall& call, Arrays arrays, const DataOf& dataOf) {
    const MessageList& list = call.joined != nullptr ? *call.joined : call.list;
    for (std::size_t a = 0; a < static_cast<std::size_t>(list.count); ++a) {
      arrays.data[a] = dataOf(list.messages[a]);
      arrays.counts[a] = list.messages[a].bytes;
    }
    for (std::size_t m = 0; m < static_cast<std::size_t>(call.list.count); ++m) {
      arrays.firsts[m] = call.joined != nullptr ? list.pairs[m].first : static_cast<std::uint8_t>(m);
      arrays.joined[m] = call.joined != nullptr ? list.pairs[m].count : 1;
    }
    return arrays;
  }

  template <std::size_t algorithm>
  static void setScratch(typename Type::Args& args, const ExchangeCall& call) {
    using Messages = typename CollectiveOf<algorithm, 0, Byte>::Messages;
    const ExchangeCall::Place& place = call.places[algorithm - firstMessageAlgorithm];
    auto& scratch = static_cast<TransferScratch<Messages>&>(args).scratch;
    scratch = Messages::scratchFor(place.capacity, call.ranks, place.pipeline);
    scratch.start = place.offset;
  }
};

/// The kernels of an algorithm for elements T. Backend: template <class T> static constexpr bool
/// supports(const Algorithm&) and isSpecialized(const Algorithm&), and template <class T, std::size_t index, int ranks>
/// static int run(const KernelCall&).
template <class Backend, class T, std::size_t index>
KernelFunction variantFor(int ranks) {
  constexpr Algorithm algorithm = algorithmTable[index];
  KernelFunction found = nullptr;
  if constexpr (algorithm.variants != Variants::CopyEngine && Backend::template supports<T>(algorithm)) {
    found = &Backend::template run<T, index, 0>;
    if constexpr (Backend::template isSpecialized<T>(algorithm)) {
      [&]<std::size_t... i>(std::index_sequence<i...>) {
        ((ranks == fixedTeamSizes[i] ? void(found = &Backend::template run<T, index, fixedTeamSizes[i]>) : void()),
         ...);
      }
      (std::make_index_sequence<fixedTeamSizes.size()>{});
    }
  }
  return found;
}

/// The same for an algorithm whose collective reduces (isReduction) or not; null for others.
template <class Backend, class T, bool isReduction>
KernelFunction findVariant(std::size_t algorithm, int ranks) {
  KernelFunction found = nullptr;
  detail::visitIndex(algorithm, [&]<std::size_t i>() {
    if constexpr (hasReduction(algorithmTable[i].collective) == isReduction) found = variantFor<Backend, T, i>(ranks);
  });
  return found;
}

}  // namespace mscclpp::kernels
