// Stages: what a collective does with each pack of some slices, as a chain of operations on registers. The same stages
// run over a packet session and over a tile pipeline.
//
//   eachPeer(slices) | from(source) | send<inputs>()                                      scatter
//   ownSlice(slices) | from(source) | reduce<inputs, Op>() | share<results>() | into(sink)
//   eachPeer(slices) | receive<results>() | into(sink)                                    collect
//
// A chain begins with the slices: this rank's own, those of every peer, or the way to one peer. Then each operation
// gets the packs from the one before it, and hands them on. Data travels through *arrays* of slots in the scratch,
// which have numbers: what a stage sends through array a, the next stage of the peer receives from array a.
#pragma once

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/source_sink.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/collective/layout.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp::stage {

/// The slices whose packs a stage handles, and the peers that it exchanges them with.
enum class Peers {
  None,  ///< this rank's own slice
  Each,  ///< for each peer, the slice of that peer
  One    ///< this rank's own slice, with one peer
};

/// What an operation gets besides the packs: the session, and for each of the packs the slice that it belongs to and
/// the peer that it goes to or comes from. All ranks handle the same position of their slices at the same time.
template <class SessionType, class StageType, int packs>
struct Call {
  using Layout = typename StageType::Layout;
  SessionType& session;
  const Layout& layout;
  int slices[packs];
  int peers[packs];
  std::uint64_t traceArgument;  ///< of the spans of an exchange

  /// The bytes of a part of the slice, which is not empty.
  MSCCLPP_INLINE std::size_t bytes(Range part) const {
    const auto last = part.end - 1;
    return ((last - part.begin) * packSize<typename Layout::Element> +
            static_cast<std::size_t>(layout.valid(slices[0], last))) *
           sizeof(typename Layout::Element);
  }
  /// The first element, and the number of elements, of pack i of n.
  template <class At>
  MSCCLPP_INLINE std::size_t first(int i, const At& at) const {
    return layout.first(slices[i], at.pack);
  }
  template <class At>
  MSCCLPP_INLINE int valid(int i, const At& at) const {
    return layout.valid(slices[i], at.pack);
  }
  /// The order in which peers are addressed (Team::peer). An exchange is for short messages: no rotation.
  MSCCLPP_INLINE int rotation() const {
    if constexpr (StageType::isExchange) {
      return 0;
    } else {
      return session.rotation();
    }
  }
  /// Called before the first wait. An exchange is recorded as two spans: what it sends, and what it receives.
  MSCCLPP_INLINE void startReceiving() {
    if constexpr (StageType::isExchange) {
      session.trace().end(TraceId::Push);
      session.trace().begin(StageType::traceId, traceArgument);
    }
  }
};

// An operation is a const value with
//   apply(call, at, words): performs it on the packs at positions `at` of the slices; `words` are the packs, encoded as
//     the session sends them. Returns false if a wait failed: the rest of the chain is then left out.
//   sent, received: the arrays that it uses, as bit masks.
//   copyBlock(call, part, data, target), if isContiguous: the same for a part of a slice in one piece, which
//     call.session.copy(to, from, bytes) copies: by a single CPU thread, which copies memory faster than it handles
//     packs, or in bulk. data: where the operation before it left the part; target: where the chain's sink wants it.
//     Returns where the part is then.

/// The defaults of an operation.
struct Operation {
  static constexpr std::uint32_t sent = 0;
  static constexpr std::uint32_t received = 0;
  static constexpr bool needsPeer = false;      ///< its stage exchanges packs with a peer
  static constexpr bool needsOwnSlice = false;  ///< its stage is one of the own slice
  static constexpr bool storesToPeers = false;  ///< sends without an array, to memory that the peers registered
  static constexpr bool awaitsStores = false;   ///< waits for what the peers sent in that way
  static constexpr bool isReduction = false;
  static constexpr bool isExchange = false;  ///< sends a pack and then receives others at its position
  static constexpr bool isContiguous = false;
  static constexpr bool hasTarget = false;  ///< ends in a sink that is contiguous memory
};

/// Provides this rank's contribution from a source (basic/source_sink.hpp).
template <class Source>
struct From : Operation {
  static constexpr bool isContiguous = ArrayAccess<Source>;
  const Source& source;
  MSCCLPP_INLINE explicit From(const Source& from) : source(from) {}

  template <class C, class At, int n>
  MSCCLPP_INLINE bool apply(C& call, const At (&at)[n], Word128 (&words)[n]) const {
    using T = typename C::Layout::Element;
    MSCCLPP_UNROLL
    for (int i = 0; i < n; ++i) {
      words[i] = Word128{0, 0};
      if (at[i].active) {
        words[i] = toWord<T>(source(call.first(i, at[i]), call.valid(i, at[i])));
      }
    }
    MSCCLPP_UNROLL
    for (int i = 0; i < n; ++i) words[i] = call.session.encode(words[i]);
    return true;
  }
  template <class C>
  MSCCLPP_INLINE const std::byte* copyBlock(C& call, Range part, const std::byte* /*data*/,
                                            std::byte* /*target*/) const {
    return reinterpret_cast<const std::byte*>(source.data() + call.layout.first(call.slices[0], part.begin));
  }
};
template <class Source>
MSCCLPP_INLINE From<Source> from(const Source& source) {
  return From<Source>(source);
}

/// Sends each pack to its peer.
template <int array>
struct Send : Operation {
  static constexpr bool needsPeer = true;
  static constexpr bool isContiguous = true;
  static constexpr std::uint32_t sent = 1u << array;

  template <class C, class At, int n>
  MSCCLPP_INLINE bool apply(C& call, const At (&at)[n], Word128 (&words)[n]) const {
    MSCCLPP_UNROLL
    for (int i = 0; i < n; ++i) call.session.send(array, call.peers[i], at[i], words[i]);
    return true;
  }
  template <class C>
  MSCCLPP_INLINE const std::byte* copyBlock(C& call, Range part, const std::byte* data, std::byte* /*target*/) const {
    call.session.copy(call.session.outgoing(array, call.peers[0]), data, call.bytes(part));
    return data;
  }
};
template <int array>
MSCCLPP_INLINE Send<array> send() {
  return {};
}

/// Sends each pack to all peers.
template <int array>
struct Share : Operation {
  static constexpr bool needsOwnSlice = true;
  static constexpr bool isContiguous = true;
  static constexpr std::uint32_t sent = 1u << array;

  template <class C, class At, int n>
  MSCCLPP_INLINE bool apply(C& call, const At (&at)[n], Word128 (&words)[n]) const {
    MSCCLPP_UNROLL
    for (int i = 0; i < n; ++i) call.session.broadcast(array, at[i], words[i], call.rotation());
    return true;
  }
  template <class C>
  MSCCLPP_INLINE const std::byte* copyBlock(C& call, Range part, const std::byte* data, std::byte* /*target*/) const {
    const auto& team = call.session.team();
    for (int i = 0; i < team.size() - 1; ++i) {
      const int peer = team.peer(i, call.rotation());
      call.session.copy(call.session.outgoing(array, peer), data, call.bytes(part));
    }
    return data;
  }
};
template <int array>
MSCCLPP_INLINE Share<array> share() {
  return {};
}

/// Waits for each pack from its peer.
template <int array>
struct Receive : Operation {
  static constexpr bool needsPeer = true;
  static constexpr bool isContiguous = true;
  static constexpr std::uint32_t received = 1u << array;

  template <class C, class At, int n>
  MSCCLPP_INLINE bool apply(C& call, const At (&at)[n], Word128 (&words)[n]) const {
    call.startReceiving();
    return call.session.template receive<n>(array, call.peers, at, words);
  }
  template <class C>
  MSCCLPP_INLINE const std::byte* copyBlock(C& call, Range, const std::byte* /*data*/, std::byte* /*target*/) const {
    return call.session.incoming(array, call.peers[0]);
  }
};
template <int array>
MSCCLPP_INLINE Receive<array> receive() {
  return {};
}

/// Waits for the packs of all peers and reduces them with this rank's own, in rank order from 0, in Accumulator<T>,
/// rounded once: every rank computes the same bits.
template <int array, class Op>
struct Reduce : Operation {
  static constexpr bool needsOwnSlice = true;
  static constexpr bool isContiguous = true;
  static constexpr bool isReduction = true;
  static constexpr std::uint32_t received = 1u << array;
  [[no_unique_address]] Op op;
  MSCCLPP_INLINE explicit Reduce(const Op& reduction) : op(reduction) {}

  template <class C, class At, int n>
  MSCCLPP_INLINE bool apply(C& call, const At (&at)[n], Word128 (&words)[n]) const {
    call.startReceiving();
    bool isReduced = true;
    MSCCLPP_UNROLL
    for (int i = 0; i < n; ++i)
      isReduced &= call.session.template reduce<typename C::Layout::Element>(array, at[i], words[i], op);
    return isReduced;
  }
  template <class C>
  MSCCLPP_INLINE const std::byte* copyBlock(C& call, Range part, const std::byte* data, std::byte* target) const {
    call.session.template reduceBlock<typename C::Layout::Element>(array, data, target, call.bytes(part), op);
    return target;
  }
};
template <int array, class Op>
MSCCLPP_INLINE Reduce<array, Op> reduce(const Op& op) {
  return Reduce<array, Op>(op);
}
/// The same with an operator without state.
template <int array, StatelessOperator Op>
MSCCLPP_INLINE Reduce<array, Op> reduce() {
  return Reduce<array, Op>(Op{});
}

/// Replaces each pack by f(first, pack, valid), a const callable like a source (basic/source_sink.hpp) that also gets
/// the pack. On every rank that handles the pack; so a reduction stays the same everywhere if f computes the same
/// everywhere.
template <class F>
struct Transform : Operation {
  const F& f;
  MSCCLPP_INLINE explicit Transform(const F& function) : f(function) {}

  template <class C, class At, int n>
  MSCCLPP_INLINE bool apply(C& call, const At (&at)[n], Word128 (&words)[n]) const {
    using T = typename C::Layout::Element;
    MSCCLPP_UNROLL
    for (int i = 0; i < n; ++i) {
      Word128 pack = call.session.decode(words[i]);
      if (at[i].active) {
        pack = toWord<T>(f(call.first(i, at[i]), fromWord<T>(pack), call.valid(i, at[i])));
      }
      words[i] = call.session.encode(pack);
    }
    return true;
  }
};
template <class F>
MSCCLPP_INLINE Transform<F> transform(const F& f) {
  return Transform<F>(f);
}

/// Stores each pack to a sink (basic/source_sink.hpp).
template <class Sink>
struct Into : Operation {
  static constexpr bool isContiguous = ArrayAccess<Sink>;
  static constexpr bool hasTarget = isContiguous;
  const Sink& sink;
  MSCCLPP_INLINE explicit Into(const Sink& into) : sink(into) {}

  template <class C, class At, int n>
  MSCCLPP_INLINE bool apply(C& call, const At (&at)[n], Word128 (&words)[n]) const {
    using T = typename C::Layout::Element;
    MSCCLPP_UNROLL
    for (int i = 0; i < n; ++i) {
      const Word128 pack = call.session.decode(words[i]);
      if (at[i].active) sink(call.first(i, at[i]), fromWord<T>(pack), call.valid(i, at[i]));
    }
    return true;
  }
  MSCCLPP_INLINE std::byte* target(std::size_t firstElement) const {
    return reinterpret_cast<std::byte*>(sink.data() + firstElement);
  }
  template <class C>
  MSCCLPP_INLINE const std::byte* copyBlock(C& call, Range part, const std::byte* data, std::byte* target) const {
    if (data != target) call.session.copy(target, data, call.bytes(part));
    return target;
  }
};
template <class Sink>
MSCCLPP_INLINE Into<Sink> into(const Sink& sink) {
  return Into<Sink>(sink);
}

/// Stores each pack where the peers want it, without scratch between: outputs.at(peer) is element 0 of the peer's
/// output, which it registered (RegisteredBuffer). In a stage of the own slice to all peers, otherwise to the stage's
/// peer; at the place of this rank's slice in the layout, plus `offset` elements. Only in a tile pipeline, and only
/// where a peer is known to have entered the call: with SlotReuse::ByCredits, or behind a reduction of all ranks' data.
template <class T, int Ranks>
struct StoreToPeers : Operation {
  static constexpr bool isContiguous = true;
  static constexpr bool storesToPeers = true;
  const Window<Ranks>& outputs;
  std::size_t offset;
  MSCCLPP_INLINE StoreToPeers(const Window<Ranks>& window, std::size_t elements) : outputs(window), offset(elements) {}

  template <class C, class At, int n>
  MSCCLPP_INLINE bool apply(C& call, const At (&at)[n], Word128 (&words)[n]) const {
    const auto& team = call.session.team();
    MSCCLPP_UNROLL
    for (int i = 0; i < n; ++i) {
      if (!at[i].active) continue;
      const std::size_t first = offset + call.layout.first(team.rank(), at[i].pack);
      const Pack<T> pack = fromWord<T>(call.session.decode(words[i]));
      const auto store = [&](int peer) { ArraySink<T>(outputOf(peer))(first, pack, call.valid(i, at[i])); };
      if (call.peers[i] >= 0) {
        store(call.peers[i]);
      } else {
        MSCCLPP_UNROLL
        for (int p = 0; p < team.size() - 1; ++p) store(team.peer(p, call.rotation()));
      }
    }
    return true;
  }
  template <class C>
  MSCCLPP_INLINE const std::byte* copyBlock(C& call, Range part, const std::byte* data, std::byte* /*target*/) const {
    const auto& team = call.session.team();
    const std::size_t first = offset + call.layout.first(team.rank(), part.begin);
    const auto copy = [&](int peer) { call.session.copy(outputOf(peer) + first, data, call.bytes(part)); };
    if (call.peers[0] >= 0) {
      copy(call.peers[0]);
    } else {
      for (int p = 0; p < team.size() - 1; ++p) copy(team.peer(p, call.rotation()));
    }
    return data;
  }

 private:
  MSCCLPP_INLINE T* outputOf(int peer) const { return reinterpret_cast<T*>(outputs.at(peer)); }
};
template <class T, int Ranks>
MSCCLPP_INLINE StoreToPeers<T, Ranks> storeToPeers(const Window<Ranks>& outputs, std::size_t offset = 0) {
  return StoreToPeers<T, Ranks>(outputs, offset);
}

/// Waits until the peers of the stage have stored to this rank's output; the stage's only operation.
struct AwaitStores : Operation {
  static constexpr bool awaitsStores = true;

  template <class C, class At, int n>
  MSCCLPP_INLINE bool apply(C& /*call*/, const At (&/*at*/)[n], Word128 (&/*words*/)[n]) const {
    return true;
  }
};
MSCCLPP_INLINE AwaitStores awaitStores() {
  return {};
}

/// One operation after another.
template <class First, class Second>
struct Then : Operation {
  static_assert(!First::awaitsStores && !Second::awaitsStores, "awaitStores() must be the only operation of a stage");
  First first;
  Second second;
  MSCCLPP_INLINE Then(const First& a, const Second& b) : first(a), second(b) {}

  static constexpr std::uint32_t sent = First::sent | Second::sent;
  static constexpr std::uint32_t received = First::received | Second::received;
  static constexpr bool needsPeer = First::needsPeer || Second::needsPeer;
  static constexpr bool needsOwnSlice = First::needsOwnSlice || Second::needsOwnSlice;
  static constexpr bool storesToPeers = First::storesToPeers || Second::storesToPeers;
  static constexpr bool isReduction = First::isReduction || Second::isReduction;
  static constexpr bool isExchange =
      First::isExchange || Second::isExchange || (First::sent != 0 && Second::received != 0);
  static constexpr bool isContiguous = First::isContiguous && Second::isContiguous;
  static constexpr bool hasTarget = First::hasTarget || Second::hasTarget;

  template <class C, class At, int n>
  MSCCLPP_INLINE bool apply(C& call, const At (&at)[n], Word128 (&words)[n]) const {
    return first.apply(call, at, words) && second.apply(call, at, words);
  }
  MSCCLPP_INLINE std::byte* target(std::size_t firstElement) const {
    if constexpr (Second::hasTarget) {
      return second.target(firstElement);
    } else {
      return first.target(firstElement);
    }
  }
  template <class C>
  MSCCLPP_INLINE const std::byte* copyBlock(C& call, Range part, const std::byte* data, std::byte* target) const {
    return second.copyBlock(call, part, first.copyBlock(call, part, data, target), target);
  }
};

/// Slices and the chain of operations on their packs. The functions below make it.
template <Peers peersOf, class LayoutType, class Chain>
struct Stage {
  static_assert(peersOf != Peers::None || !Chain::needsPeer,
                "send() and receive() need a stage with peers: eachPeer() or withPeer(); to all peers: share()");
  static_assert(peersOf == Peers::None || !Chain::needsOwnSlice,
                "share() and reduce() need a stage of the own slice: ownSlice()");

  using Layout = LayoutType;
  static constexpr Peers peers = peersOf;

  Layout layout;
  Chain chain;
  int rank;  ///< Peers::One: the peer. Otherwise the only rank with this stage, or -1: all ranks have it

  /// Whether a rank has this stage.
  MSCCLPP_INLINE bool isOn(int r) const { return peers == Peers::One ? r != rank : rank < 0 || r == rank; }

  static constexpr bool sends = Chain::sent != 0 || Chain::storesToPeers;
  static constexpr bool receives = Chain::received != 0 || Chain::awaitsStores;
  static constexpr bool storesToPeers = Chain::storesToPeers;
  static constexpr bool isOnlyWait = Chain::awaitsStores;
  static constexpr bool isReduction = Chain::isReduction;
  static constexpr bool isExchange = Chain::isExchange;
  /// Whether a single thread handles parts of slices in one piece.
  static constexpr bool isContiguous = Chain::isContiguous && (!Chain::isReduction || Chain::hasTarget);
  static constexpr TraceId traceId = Chain::isReduction ? TraceId::Reduce : receives ? TraceId::Collect : TraceId::Push;

  static MSCCLPP_HOST_DEVICE constexpr bool usesArraysBelow(int arrays) {
    return ((Chain::sent | Chain::received) >> arrays) == 0;
  }

  static constexpr std::uint32_t sent = Chain::sent;
  static constexpr std::uint32_t received = Chain::received;

  /// The number of packs that rank `self`, whose stage this is, receives from rank `from` through the array. Not asked
  /// of the stage that sends: only that of the sender need know how many it sends.
  MSCCLPP_INLINE auto packsReceived(int array, int from, int self) const {
    using Count = decltype(layout.packs(0));
    if ((Chain::received >> array & 1) == 0 || from == self || !exchangesWith(self, from)) return Count{0};
    return layout.packs(peers == Peers::Each ? from : self);
  }
  /// Whether rank `self` sends to, or receives from, this peer in this stage.
  MSCCLPP_INLINE bool sendsTo(int self, int peer) const { return sends && exchangesWith(self, peer); }
  MSCCLPP_INLINE bool receivesFrom(int self, int peer) const { return receives && exchangesWith(self, peer); }

 private:
  MSCCLPP_INLINE bool exchangesWith(int self, int peer) const {
    return isOn(self) && (peers != Peers::One || peer == rank);
  }
};

/// Performs a chain whose isContiguous is true on a part of the slice in one piece.
template <class C, class Chain>
MSCCLPP_INLINE void copyBlock(C& call, const Chain& chain, Range part) {
  std::byte* target = nullptr;
  if constexpr (Chain::hasTarget) target = chain.target(call.layout.first(call.slices[0], part.begin));
  chain.copyBlock(call, part, nullptr, target);
}

/// No operation: the beginning of a chain.
struct Start : Operation {};

/// This rank's own slice of the layout. on: the only rank with this stage, -1 for all.
template <class Layout>
MSCCLPP_INLINE Stage<Peers::None, Layout, Start> ownSlice(const Layout& layout, int on = -1) {
  return {layout, {}, on};
}
/// The slice of each peer, to send it there or to receive it from there. on: the only rank with this stage.
template <class Layout>
MSCCLPP_INLINE Stage<Peers::Each, Layout, Start> eachPeer(const Layout& layout, int on = -1) {
  return {layout, {}, on};
}
/// This rank's own slice, to send it to `peer` or to receive it from there; all ranks but `peer` have this stage.
template <class Layout>
MSCCLPP_INLINE Stage<Peers::One, Layout, Start> withPeer(const Layout& layout, int peer) {
  return {layout, {}, peer};
}

template <Peers peers, class Layout, class Operation>
MSCCLPP_INLINE Stage<peers, Layout, Operation> operator|(const Stage<peers, Layout, Start>& stage,
                                                         const Operation& next) {
  return {stage.layout, next, stage.rank};
}
template <Peers peers, class Layout, class Chain, class Operation>
MSCCLPP_INLINE Stage<peers, Layout, Then<Chain, Operation>> operator|(const Stage<peers, Layout, Chain>& stage,
                                                                      const Operation& next) {
  return {stage.layout, {stage.chain, next}, stage.rank};
}

/// Whether every stage that stores to peers is followed by one that awaits it, and the reverse.
template <class... Stages>
MSCCLPP_HOST_DEVICE constexpr bool storesAreAwaited() {
  bool isStored = false;
  bool areAwaited = true;
  const auto check = [&](bool stores, bool awaits) {
    areAwaited &= awaits == isStored;
    isStored = stores;
  };
  (check(Stages::storesToPeers, Stages::isOnlyWait), ...);
  return areAwaited && !isStored;
}

/// Whether each array has at most one stage that sends through it, and every array that is received has been sent
/// through by an earlier stage, or by the same one in an exchange. adjacent: by the last stage before that sends or
/// receives.
template <class... Stages>
MSCCLPP_HOST_DEVICE constexpr bool arraysMatch(bool adjacent) {
  std::uint32_t sentBefore = 0;
  std::uint32_t sentLast = 0;
  bool match = true;
  const auto add = [&](std::uint32_t sent, std::uint32_t received, bool isExchange) {
    if ((sent & sentBefore) != 0) match = false;
    const std::uint32_t available = (adjacent ? sentLast : sentBefore) | (isExchange ? sent : 0u);
    if ((received & ~available) != 0) match = false;
    if ((sent | received) != 0) sentLast = sent;
    sentBefore |= sent;
  };
  (add(Stages::sent, Stages::received, Stages::isExchange), ...);
  return match;
}

}  // namespace mscclpp::stage
