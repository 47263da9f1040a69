// The vocabulary of the library on one page: what each template parameter must offer. Models and their static_asserts stand in the headers named.
#pragma once

#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

#if defined(__CUDACC_RTC__)
#include <cuda/std/concepts>
namespace mscclpp::detail {
template <class From, class To>
concept ConvertibleTo = cuda::std::convertible_to<From, To>;
template <class A, class B>
concept SameAs = cuda::std::same_as<A, B>;
}  // namespace mscclpp::detail
#else
#include <concepts>
namespace mscclpp::detail {
template <class From, class To>
concept ConvertibleTo = std::convertible_to<From, To>;
template <class A, class B>
concept SameAs = std::same_as<A, B>;
}  // namespace mscclpp::detail
#endif

namespace mscclpp {

/// Threads that act together: each knows its rank in [0, size), and sync() waits for all of them and orders their memory accesses.
/// Models: basic/group.hpp (GPU), basic/serial_group.hpp (one CPU thread), emulation/group.hpp (CPU threads).
template <class G>
concept ThreadGroup = requires(const G& group) {
  { group.rank() } -> detail::ConvertibleTo<int>;
  { group.size() } -> detail::ConvertibleTo<int>;
  group.sync();
};

/// A group that is known at compile time to be one thread: nobody else waits for what it does next, and its accesses go up in memory.
template <class G>
concept LoneThread = ThreadGroup<G> && requires {
  requires G::width == 1;
};

/// A group whose threads exchange registers. width is a compile-time constant; nobody writes 32.
/// lockstepStores: a store executed by all lanes to one aligned 128-byte line may reach memory whole (true of GPU warps only).
template <class G>
concept WarpGroup = ThreadGroup<G> && requires(const G& warp, std::uint32_t value, bool predicate) {
  { G::width } -> detail::ConvertibleTo<int>;
  { G::lockstepStores } -> detail::ConvertibleTo<bool>;
  { warp.shuffle(value, 0) } -> detail::SameAs<std::uint32_t>;
  { warp.all(predicate) } -> detail::SameAs<bool>;
  { warp.any(predicate) } -> detail::SameAs<bool>;
};

/// The blocks of one launch: which block this is, how many there are, and the block as a group of threads and of warps.
template <class G>
concept Grid = requires(const G& grid) {
  { grid.blockIndex() } -> detail::ConvertibleTo<int>;
  { grid.blockCount() } -> detail::ConvertibleTo<int>;
  { grid.block() } -> ThreadGroup;
  { grid.warp() } -> WarpGroup;
  { grid.warpIndex() } -> detail::ConvertibleTo<int>;
  { grid.warpCount() } -> detail::ConvertibleTo<int>;
};

/// A grid whose blocks can split into worker warps and a control warp that meet at numbered meetings, 0 to 3: each is attended by the whole block, one side
/// arriving and going on, the other waiting until all have come and then seeing what they wrote before.
template <class G>
concept SplitGrid = Grid<G> && requires(const G& grid) {
  { grid.isControl() } -> detail::SameAs<bool>;
  { grid.workers() } -> ThreadGroup;
  grid.meetingArrive(0);
  grid.meetingWait(0);
};

/// A grid whose blocks have memory that only their threads share, 128-byte aligned, as much as the launch was given.
template <class G>
concept SharedMemoryGrid = Grid<G> && requires(const G& grid) {
  { grid.sharedMemory() } -> detail::SameAs<std::byte*>;
};

struct WaitSite;
namespace detail {
struct AnyAttempt {
  MSCCLPP_HOST_DEVICE bool operator()(std::uint64_t& seen) const;
};
struct AnyWarp {
  MSCCLPP_HOST_DEVICE void sync() const;
  MSCCLPP_HOST_DEVICE bool any(bool predicate) const;
};
}  // namespace detail

/// How a thread waits: until(site, attempt) calls attempt(seen) until it returns true, and returns true; or gives up, leaves a record, and returns false,
/// after which every further wait of the same policy object makes one attempt only. untilTogether is for lanes whose attempts vote, so that they also
/// give up together. Models: basic/wait.hpp.
template <class W>
concept WaitPolicy = requires(W& wait, const WaitSite& site, const detail::AnyWarp& warp) {
  { wait.until(site, detail::AnyAttempt{}) } -> detail::SameAs<bool>;
  { wait.untilTogether(warp, site, detail::AnyAttempt{}) } -> detail::SameAs<bool>;
};

enum class TraceId : std::uint16_t;
/// What records events of a thread: begin and end of a span, with a number each if one likes, and points in time. Models: basic/trace.hpp, host/trace.hpp.
template <class T>
concept TracePolicy = requires(T& trace, TraceId id, std::uint64_t argument) {
  trace.begin(id);
  trace.begin(id, argument);
  trace.end(id);
  trace.end(id, argument);
  trace.point(id);
  trace.point(id, argument);
};

/// A stateless reduction on an accumulator type. Models: basic/reduce_op.hpp.
template <class Op, class A>
concept ReductionOperator = requires(A a, A b) {
  { Op::combine(a, b) } -> detail::SameAs<A>;
  { Op::finish(a, 1) } -> detail::SameAs<A>;
};

/// A unit of data that carries its own arrival flag. Models: packet/ll8.hpp, packet/ll16.hpp.
template <class P>
concept Packet = requires(P& packet, const P& arrived, typename P::Payload payload, std::uint32_t flag) {
  packet.write(payload, flag);
  { arrived.tryRead(flag, payload) } -> detail::SameAs<bool>;
  { arrived.load() } -> detail::SameAs<P>;
  { arrived.carries(flag) } -> detail::SameAs<bool>;
  { arrived.payload() } -> detail::SameAs<typename P::Payload>;
};

/// How 16-byte packs travel through slots that carry their own arrival marks, a row of a warp's packs at a time. One slot array serves one sender and one
/// receiver; each write of a slot uses a new epoch.
/// encode() turns the packs of a row into the words that its lanes store, decode() turns them back; elements stay whole, so words may be reduced without
/// being decoded. To receive: fetch() issues the loads, without a branch, so that rows of several senders are in flight together; arrived() says whether that
/// was all of it; received() gives the word; consumed() readies the slot for its next use. Rows are written and read by warps of one width.
/// wholeRows: all lanes of the warp must take part in every row. Models: packet/packet_rows.hpp, ll128.hpp, sentinel.hpp.
template <class P, class Warp>
concept PackProtocol = requires(const Warp& warp, std::byte* slots, std::size_t row, const Word16& pack,
                                std::uint64_t epoch, typename P::Fetched& fetched) {
  { P::wholeRows } -> detail::ConvertibleTo<bool>;
  { P::packsPerRow(1) } -> detail::ConvertibleTo<int>;
  { P::bytes(row) } -> detail::ConvertibleTo<std::size_t>;
  { P::initialByte } -> detail::ConvertibleTo<int>;
  { P::nextEpoch(epoch) } -> detail::SameAs<std::uint64_t>;
  { P::encode(warp, pack) } -> detail::SameAs<Word16>;
  { P::decode(warp, pack) } -> detail::SameAs<Word16>;
  P::write(warp, slots, row, pack, epoch);
  { P::fetch(warp, slots, row, epoch) } -> detail::SameAs<typename P::Fetched>;
  { P::arrived(warp, slots, row, fetched, epoch) } -> detail::SameAs<bool>;
  { P::received(warp, fetched) } -> detail::SameAs<Word16>;
  P::consumed(warp, slots, row);
};

/// One side of a pair of counters: signal() tells the peer, wait() waits for its next signal. Models: sync/semaphore.hpp.
template <class S, class W>
concept SemaphoreLike = requires(S& semaphore, W& wait) {
  semaphore.signal();
  { semaphore.wait(wait) } -> detail::SameAs<bool>;
  { semaphore.poll() } -> detail::SameAs<bool>;
};

/// Who takes part in a collective. peer(i), i in [0, size - 1), goes round the others starting after this rank. Models: basic/team.hpp.
template <class T>
concept TeamLike = requires(const T& team, int i) {
  { team.rank() } -> detail::ConvertibleTo<int>;
  { team.size() } -> detail::ConvertibleTo<int>;
  { team.peer(i) } -> detail::ConvertibleTo<int>;
};

}  // namespace mscclpp
