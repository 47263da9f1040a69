// The minimal requirements of each concept: an archetype satisfies it, and does not if any one member is missing.
#include "mscclpp/basic/concepts.hpp"

#include <doctest/doctest.h>

#include "mscclpp/basic/group.hpp"
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/basic/wait.hpp"

using namespace mscclpp;

namespace {

struct MinimalGroup {
  int rank() const;
  int size() const;
  void sync() const;
};
static_assert(ThreadGroup<MinimalGroup>);
static_assert(!WarpGroup<MinimalGroup>);
static_assert(!ThreadGroup<int>);

struct NoSync {
  int rank() const;
  int size() const;
};
static_assert(!ThreadGroup<NoSync>);

struct SyncNotConst {
  int rank() const;
  int size() const;
  void sync();
};
static_assert(!ThreadGroup<SyncNotConst>);

struct MinimalWarp : MinimalGroup {
  static constexpr int width = 2;
  static constexpr bool lockstepStores = false;
  std::uint32_t shuffle(std::uint32_t, int) const;
  bool all(bool) const;
  bool any(bool) const;
  std::uint32_t ballot(bool) const;
};
static_assert(WarpGroup<MinimalWarp>);

struct WarpVoteReturnsInt : MinimalWarp {
  int all(bool) const;
};
static_assert(!WarpGroup<WarpVoteReturnsInt>);

struct MinimalGrid {
  int blockIndex() const;
  int blockCount() const;
  MinimalGroup block() const;
  MinimalWarp warp() const;
  int warpIndex() const;
  int warpCount() const;
};
static_assert(Grid<MinimalGrid>);

struct GridWithoutWarps : MinimalGrid {
  MinimalGroup warp() const;
};
static_assert(!Grid<GridWithoutWarps>);

struct MinimalWait {
  template <class Attempt>
  bool until(const WaitSite&, Attempt&&);
  template <class Warp, class Attempt>
  bool untilCollective(const Warp&, const WaitSite&, Attempt&&);
};
static_assert(WaitPolicy<MinimalWait>);

struct WaitReturnsVoid {
  template <class Attempt>
  void until(const WaitSite&, Attempt&&);
  template <class Warp, class Attempt>
  void untilCollective(const Warp&, const WaitSite&, Attempt&&);
};
static_assert(!WaitPolicy<WaitReturnsVoid>);

struct MinimalOp {
  static float combine(float, float);
  static float finish(float, int);
};
static_assert(ReductionOperator<MinimalOp, float>);
static_assert(!ReductionOperator<MinimalOp, int>, "results have the accumulator's type");
static_assert(StatelessOperator<MinimalOp> && !ChoosesOperator<MinimalOp>);

struct MinimalOpWithState {
  float state;
  float combine(float, float) const;
  float finish(float, int) const;
};
static_assert(ReductionOperator<MinimalOpWithState, float>);
static_assert(!StatelessOperator<MinimalOpWithState> && !ChoosesOperator<MinimalOpWithState>);

struct OpWhoseCombineIsNotConst {
  float combine(float, float);
  float finish(float, int) const;
};
static_assert(!ReductionOperator<OpWhoseCombineIsNotConst, float>);

struct MinimalChoice : MinimalOpWithState {
  template <class F>
  void with(const F& f) const {
    f(MinimalOp{});
  }
};
static_assert(ReductionOperator<MinimalChoice, float> && ChoosesOperator<MinimalChoice>);

struct MinimalPacket {
  using Payload = std::uint32_t;
  void write(Payload, std::uint32_t);
  bool tryRead(std::uint32_t, Payload&) const;
  MinimalPacket load() const;
  bool hasFlag(std::uint32_t) const;
  Payload payload() const;
};
static_assert(Packet<MinimalPacket>);

struct PacketTryReadNotConst {
  using Payload = std::uint32_t;
  void write(Payload, std::uint32_t);
  bool tryRead(std::uint32_t, Payload&);
  PacketTryReadNotConst load() const;
  bool hasFlag(std::uint32_t) const;
  Payload payload() const;
};
static_assert(!Packet<PacketTryReadNotConst>);

struct MinimalProtocol {
  struct Fetched {};
  static constexpr bool needsFullWarp = false;
  static constexpr int initialByte = 0;
  static constexpr int packsPerRow(int width) { return width; }
  static std::size_t bytes(std::size_t);
  static std::uint64_t nextEpoch(std::uint64_t);
  static void write(const MinimalWarp&, std::byte*, std::size_t, const Word128&, std::uint64_t);
  static Fetched fetch(const MinimalWarp&, std::byte*, std::size_t, std::uint64_t);
  static bool arrived(const MinimalWarp&, std::byte*, std::size_t, Fetched&, std::uint64_t);
  static Word128 encode(const MinimalWarp&, const Word128&);
  static Word128 decode(const MinimalWarp&, const Word128&);
  static Word128 received(const MinimalWarp&, const Fetched&);
  static void resetSlot(const MinimalWarp&, std::byte*, std::size_t);
};
static_assert(PackProtocol<MinimalProtocol, MinimalWarp>);
static_assert(!PackProtocol<MinimalPacket, MinimalWarp>);

struct MinimalSemaphore {
  void signal() const;
  bool wait(MinimalWait&) const;
  bool poll() const;
};
static_assert(SemaphoreLike<MinimalSemaphore, MinimalWait>);
static_assert(!SemaphoreLike<MinimalSemaphore, SpinWait>);

struct MinimalChannel {
  void signal() const;
  bool wait() const;
  bool poll() const;
};
static_assert(Channel<MinimalChannel>);
static_assert(!Channel<MinimalSemaphore>, "the wait policy is the channel's");

struct ChannelWaitReturnsVoid : MinimalChannel {
  void wait() const;
};
static_assert(!Channel<ChannelWaitReturnsVoid>);

struct MinimalPacketChannel : MinimalChannel {
  void put(const MinimalGroup&, std::size_t, std::size_t, std::size_t) const;
  void get(const MinimalGroup&, std::size_t, std::size_t, std::size_t) const;
  void putPackets(const MinimalGroup&, std::size_t, std::size_t, std::size_t, std::uint32_t) const;
  bool unpackPackets(const MinimalGroup&, std::size_t, std::size_t, std::size_t, std::uint32_t) const;
};
static_assert(PacketChannel<MinimalPacketChannel, MinimalGroup>);
static_assert(!PacketChannel<MinimalPacketChannel, ThreadRange>, "its calls take another group");
static_assert(!PacketChannel<MinimalChannel, MinimalGroup>);
static_assert(!AsynchronousChannel<MinimalPacketChannel>);

struct MinimalAsynchronousChannel : MinimalChannel {
  bool put(std::uint64_t, std::uint64_t, std::uint64_t) const;
  bool putWithSignal(std::uint64_t, std::uint64_t, std::uint64_t) const;
  bool putWithSignalAndFlush(std::uint64_t, std::uint64_t, std::uint64_t) const;
  bool flush() const;
};
static_assert(AsynchronousChannel<MinimalAsynchronousChannel>);
static_assert(!AsynchronousChannel<MinimalChannel>);

struct ChannelFlushReturnsVoid : MinimalAsynchronousChannel {
  void flush() const;
};
static_assert(!AsynchronousChannel<ChannelFlushReturnsVoid>);

struct MinimalMulticastChannel : MinimalChannel {
  template <class V>
  V reduce(std::size_t) const;
  void broadcast(std::size_t, float) const;
  void reduceInto(std::size_t, float) const;
};
static_assert(MulticastChannel<MinimalMulticastChannel, float>);
static_assert(!MulticastChannel<MinimalMulticastChannel, MinimalGroup>, "it stores another type");
static_assert(!MulticastChannel<MinimalChannel, float>);

struct MinimalTeam {
  int rank() const;
  int size() const;
  int peer(int) const;
};
static_assert(TeamLike<MinimalTeam>);
static_assert(!TeamLike<MinimalGroup>);

}  // namespace

TEST_CASE("group: groups of one thread") {
  const cpu::SerialGrid grid;
  CHECK(grid.blockIndex() == 0);
  CHECK(grid.blockCount() == 1);
  CHECK(grid.warpIndex() == 0);
  CHECK(grid.warpCount() == 1);
  const auto warp = grid.warp();
  CHECK(warp.rank() == 0);
  CHECK(warp.size() == 1);
  CHECK(warp.shuffle(17, 0) == 17);
  CHECK((warp.all(true) && warp.any(true)));
  CHECK_FALSE((warp.all(false) || warp.any(false)));
  CHECK(ThisThread().rank() == 0);
  CHECK(ThisThread().size() == 1);
  CHECK(ThisThread().any(true));
  CHECK_FALSE(ThisThread().all(false));
  const ThreadRange range(3, 8);
  CHECK(range.rank() == 3);
  CHECK(range.size() == 8);
}

TEST_CASE("wait: TryOnce makes one attempt, SpinWait waits until success") {
  int tries = 0;
  const auto third = [&](std::uint64_t&) { return ++tries >= 3; };
  const WaitSite site{WaitOperation::Unknown, 0, 0, 0, 0};
  CHECK_FALSE(TryOnce().until(site, third));
  CHECK(tries == 1);
  CHECK_FALSE(TryOnce().untilCollective(ThisThread(), site, third));
  CHECK(tries == 2);
  CHECK(SpinWait().until(site, third));
  CHECK(tries == 3);
  tries = 0;
  CHECK(SpinWait().untilCollective(ThisThread(), site, third));
  CHECK(tries == 3);
}
