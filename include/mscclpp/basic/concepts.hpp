// The concepts of the library: the requirements on each kind of template parameter.
//
// The headers named as models hold the types and their static_asserts.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

#if defined(__CUDACC_RTC__)
#include <cuda/std/concepts>
#include <cuda/std/type_traits>
namespace mscclpp::detail {
template <class From, class To>
concept ConvertibleTo = cuda::std::convertible_to<From, To>;
template <class A, class B>
concept SameAs = cuda::std::same_as<A, B>;
template <class A>
concept Empty = cuda::std::is_empty_v<A>;
}  // namespace mscclpp::detail
#else
#include <concepts>
#include <type_traits>
namespace mscclpp::detail {
template <class From, class To>
concept ConvertibleTo = std::convertible_to<From, To>;
template <class A, class B>
concept SameAs = std::same_as<A, B>;
template <class A>
concept Empty = std::is_empty_v<A>;
}  // namespace mscclpp::detail
#endif

namespace mscclpp {

/// Threads that execute a call together. rank() is in [0, size()); sync() waits for all threads and orders their memory
/// accesses. Models: basic/group.hpp (GPU), basic/serial_group.hpp (one CPU thread), emulation/group.hpp (CPU threads).
template <class G>
concept ThreadGroup = requires(const G& group) {
  { group.rank() } -> detail::ConvertibleTo<int>;
  { group.size() } -> detail::ConvertibleTo<int>;
  group.sync();
};

/// A group whose threads can vote at a sync: syncAny(vote) is sync(), and returns whether any thread's vote is true.
template <class G>
concept VotingGroup = ThreadGroup<G> && requires(const G& group, bool vote) {
  { group.syncAny(vote) } -> detail::SameAs<bool>;
};

/// A group that is one thread, known at compile time: no other thread waits for it, and it accesses memory in ascending
/// order.
template <class G>
concept SingleThread = ThreadGroup<G> && requires {
  requires G::width == 1;
};

/// A group whose threads (lanes) can exchange registers. width: the number of lanes, a compile-time constant to use in
/// place of 32, at most that. ballot(): bit l is the predicate of lane l. lockstepStores: whether a store by all lanes
/// to one aligned 128-byte line may reach memory as one transaction, which only GPU warps do.
template <class G>
concept WarpGroup = ThreadGroup<G> && requires(const G& warp, std::uint32_t value, bool predicate) {
  { G::width } -> detail::ConvertibleTo<int>;
  { G::lockstepStores } -> detail::ConvertibleTo<bool>;
  { warp.shuffle(value, 0) } -> detail::SameAs<std::uint32_t>;
  { warp.all(predicate) } -> detail::SameAs<bool>;
  { warp.any(predicate) } -> detail::SameAs<bool>;
  { warp.ballot(predicate) } -> detail::SameAs<std::uint32_t>;
};

/// The blocks of a launch: index of this block, number of blocks, and the block as a group of threads and of warps.
template <class G>
concept Grid = requires(const G& grid) {
  { grid.blockIndex() } -> detail::ConvertibleTo<int>;
  { grid.blockCount() } -> detail::ConvertibleTo<int>;
  { grid.block() } -> ThreadGroup;
  { grid.warp() } -> WarpGroup;
  { grid.warpIndex() } -> detail::ConvertibleTo<int>;
  { grid.warpCount() } -> detail::ConvertibleTo<int>;
};

/// A grid whose blocks can be split into worker warps and a control warp. They synchronise through named barriers 0 to
/// 3, in which the whole block takes part: one side arrives and continues, the other waits until all threads have
/// arrived and then sees what they wrote before.
template <class G>
concept WarpSpecializedGrid = Grid<G> && requires(const G& grid) {
  { grid.isControlWarp() } -> detail::SameAs<bool>;
  { grid.workers() } -> ThreadGroup;
  grid.namedBarrierArrive(0);
  grid.namedBarrierWait(0);
};

/// A grid whose blocks have shared memory, aligned to 128 bytes, of the size that was launched with.
template <class G>
concept SharedMemoryGrid = Grid<G> && requires(const G& grid) {
  { grid.sharedMemory() } -> detail::SameAs<std::byte*>;
};

struct WaitSite;
namespace detail {
struct AttemptArchetype {
  MSCCLPP_HOST_DEVICE bool operator()(std::uint64_t& seen) const;
};
struct WarpArchetype {
  MSCCLPP_HOST_DEVICE void sync() const;
  MSCCLPP_HOST_DEVICE bool any(bool predicate) const;
};
}  // namespace detail

/// How a thread waits. until(site, attempt) calls attempt(seen) until it returns true, and then returns true. If the
/// wait times out or is aborted, it leaves a record and returns false; later waits of the same policy object then make
/// one attempt only. untilCollective(): the same for a warp whose attempts vote, so that its lanes succeed or fail
/// together. Models: basic/wait.hpp.
template <class W>
concept WaitPolicy = requires(W& wait, const WaitSite& site, const detail::WarpArchetype& warp) {
  { wait.until(site, detail::AttemptArchetype{}) } -> detail::SameAs<bool>;
  { wait.untilCollective(warp, site, detail::AttemptArchetype{}) } -> detail::SameAs<bool>;
};

enum class TraceId : std::uint16_t;
/// Records events of a thread: begin and end of a span, and points in time, each with an optional argument. Models:
/// basic/trace.hpp, host/trace/trace.hpp.
template <class T>
concept TracePolicy = requires(T& trace, TraceId id, std::uint64_t argument) {
  trace.begin(id);
  trace.begin(id, argument);
  trace.end(id);
  trace.end(id, argument);
  trace.point(id);
  trace.point(id, argument);
};

/// A reduction operator on accumulators of type A: combine() two of them, finish() the result over a number of ranks,
/// const or static. It may have state, the same on all ranks; the arguments of a call then hold its value
/// (collective/operator_args.hpp). Models: basic/reduce_op.hpp.
template <class Op, class A>
concept ReductionOperator = requires(const Op& op, A a, A b) {
  { op.combine(a, b) } -> detail::SameAs<A>;
  { op.finish(a, 1) } -> detail::SameAs<A>;
};

/// An operator without state: Op{} is its only value. Models: basic/reduce_op.hpp.
template <class Op>
concept StatelessOperator = detail::Empty<Op> && requires {
  Op{};
};

namespace detail {
struct OperatorFunctionArchetype {
  template <class Op>
  MSCCLPP_HOST_DEVICE void operator()(const Op& op) const;
};
}  // namespace detail

/// An operator whose value chooses among others: with(f) returns f(the chosen one). A reduction of packs asks it once
/// for a pack, and then computes with the chosen operator. Models: RuntimeOp in basic/reduce_op.hpp.
template <class Op>
concept ChoosesOperator = requires(const Op& op) {
  op.with(detail::OperatorFunctionArchetype{});
};

/// A unit of data that carries its own flag, which tells the receiver that it has arrived. Models: packet/ll8.hpp,
/// packet/ll16.hpp.
template <class P>
concept Packet = requires(P& packet, const P& arrived, typename P::Payload payload, std::uint32_t flag) {
  packet.write(payload, flag);
  { arrived.tryRead(flag, payload) } -> detail::SameAs<bool>;
  { arrived.load() } -> detail::SameAs<P>;
  { arrived.hasFlag(flag) } -> detail::SameAs<bool>;
  { arrived.payload() } -> detail::SameAs<typename P::Payload>;
};

/// How a warp sends and receives packs of 16 bytes through slots that carry their own arrival flags, a row (the packs
/// of one warp) at a time.
///
/// A slot array has one sender and one receiver; each write of a slot uses a new epoch. encode() makes the words that
/// the lanes store from the packs of a row, and decode() the reverse; neither splits an element, so encoded words can
/// be reduced. To receive: fetch() issues the loads without a branch, so that rows of several senders are in flight
/// together; arrived() returns whether the row is complete; received() returns the word; resetSlot() prepares the slot
/// for its next use. Rows are written and read by warps of the same width. needsFullWarp: all lanes of the warp must
/// take part in every row. Models: packet/packet_rows.hpp, ll128.hpp, sentinel.hpp.
template <class P, class Warp>
concept PackProtocol = requires(const Warp& warp, std::byte* slots, std::size_t row, const Word128& pack,
                                std::uint64_t epoch, typename P::Fetched& fetched) {
  { P::needsFullWarp } -> detail::ConvertibleTo<bool>;
  { P::packsPerRow(1) } -> detail::ConvertibleTo<int>;
  { P::bytes(row) } -> detail::ConvertibleTo<std::size_t>;
  { P::initialByte } -> detail::ConvertibleTo<int>;
  { P::nextEpoch(epoch) } -> detail::SameAs<std::uint64_t>;
  { P::encode(warp, pack) } -> detail::SameAs<Word128>;
  { P::decode(warp, pack) } -> detail::SameAs<Word128>;
  P::write(warp, slots, row, pack, epoch);
  { P::fetch(warp, slots, row, epoch) } -> detail::SameAs<typename P::Fetched>;
  { P::arrived(warp, slots, row, fetched, epoch) } -> detail::SameAs<bool>;
  { P::received(warp, fetched) } -> detail::SameAs<Word128>;
  P::resetSlot(warp, slots, row);
};

/// One side of a semaphore: signal() signals the peer, wait() waits for the peer's next signal. Models:
/// sync/semaphore.hpp, sync/switch_semaphore.hpp.
template <class S, class W>
concept SemaphoreLike = requires(const S& semaphore, W& wait) {
  semaphore.signal();
  { semaphore.wait(wait) } -> detail::SameAs<bool>;
  { semaphore.poll() } -> detail::SameAs<bool>;
};

/// A connection to a peer, or to all ranks of a group, as a kernel uses it: signal() signals the other side, wait()
/// waits for its next signal and poll() consumes one that has arrived. Calls are made by one thread. How data moves is
/// added by the concepts below. Models: channel/memory.hpp, channel/port.hpp, channel/switch.hpp.
template <class C>
concept Channel = requires(const C& channel) {
  channel.signal();
  { channel.wait() } -> detail::SameAs<bool>;
  { channel.poll() } -> detail::SameAs<bool>;
};

/// A channel whose calling threads, a group of type Group, copy the data: put() to the peer's memory, get() from it,
/// and putPackets() as packets, which the peer's unpackPackets() receives without a signal. Offsets and sizes are in
/// bytes. Models: channel/memory.hpp.
template <class C, class Group>
concept PacketChannel = Channel<C> && ThreadGroup<Group> &&
    requires(const C& channel, const Group& group, std::size_t offset, std::size_t bytes, std::uint32_t flag) {
  channel.put(group, offset, offset, bytes);
  channel.get(group, offset, offset, bytes);
  channel.putPackets(group, offset, offset, bytes, flag);
  { channel.unpackPackets(group, offset, offset, bytes, flag) } -> detail::SameAs<bool>;
};

/// A channel on which one thread requests copies that others execute, in the order of the requests: flush() waits until
/// they have completed. Returns false where a request or its completion failed. Offsets and sizes are in bytes. Models:
/// channel/port.hpp.
template <class C>
concept AsynchronousChannel = Channel<C> && requires(const C& channel, std::uint64_t offset, std::uint64_t bytes) {
  { channel.put(offset, offset, bytes) } -> detail::SameAs<bool>;
  { channel.putWithSignal(offset, offset, bytes) } -> detail::SameAs<bool>;
  { channel.putWithSignalAndFlush(offset, offset, bytes) } -> detail::SameAs<bool>;
  { channel.flush() } -> detail::SameAs<bool>;
};

/// A channel to the same memory on all ranks: reduce() loads a vector of type V reduced over the ranks, broadcast()
/// stores one to every rank, and reduceInto() adds one on every rank. An index is in units of V. Models:
/// channel/switch.hpp.
template <class C, class V>
concept MulticastChannel = Channel<C> && requires(const C& channel, std::size_t index, const V& value) {
  { channel.template reduce<V>(index) } -> detail::SameAs<V>;
  channel.broadcast(index, value);
  channel.reduceInto(index, value);
};

/// The ranks of a collective. peer(i), i in [0, size - 1), is the i-th of the other ranks, in rank order from the next
/// one, wrapping around. Models: basic/team.hpp.
template <class T>
concept TeamLike = requires(const T& team, int i) {
  { team.rank() } -> detail::ConvertibleTo<int>;
  { team.size() } -> detail::ConvertibleTo<int>;
  { team.peer(i) } -> detail::ConvertibleTo<int>;
};

}  // namespace mscclpp
