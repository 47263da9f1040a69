// Cases of collective/all_reduce.hpp over packets, for one pattern: the file that includes this one defines
// allReducePattern.
#pragma once

#include <algorithm>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "all_reduce_tester.hpp"
#include "mscclpp/basic/data_type.hpp"
#include "tests/backend/sanitizer.hpp"

namespace mscclpp::test {

/// The largest number of threads of an emulated launch; each is a thread of the operating system.
inline constexpr int maxEmulatedThreads = 96;

template <Protocol protocol, int Ranks = 0>
inline constexpr AllReduceConfig packetConfig{protocol, allReducePattern, Ranks};

/// LL128 needs warps of 16 lanes or more.
inline constexpr int widthFor(Protocol protocol) {
  return protocol == Protocol::LL128 || protocol == Protocol::LL128Ordered ? 16 : 4;
}

template <Protocol protocol, int Ranks = 0, class T = float, class Op = Sum>
using PacketTester = AllReduceTester<AllReduce<T, Op, packetConfig<protocol, Ranks>>, Op, Backend<widthFor(protocol)>>;

/// Calls f(std::integral_constant<Protocol, ...>) for every protocol that this backend supports.
template <class F>
void forEachProtocol(const F& f) {
  f(std::integral_constant<Protocol, Protocol::LL8>{});
  f(std::integral_constant<Protocol, Protocol::LL16>{});
  f(std::integral_constant<Protocol, Protocol::LL128Ordered>{});
  f(std::integral_constant<Protocol, Protocol::Sentinel>{});
  if constexpr (Backend<>::onGpu) f(std::integral_constant<Protocol, Protocol::LL128>{});
}

inline constexpr std::size_t capacityPacks = 69;

template <class T>
std::size_t capacityOf() {
  return capacityPacks * static_cast<std::size_t>(packSize<T>);
}

/// Edge cases of lengths, unaligned addresses, and in-place messages.
template <class T>
std::vector<Message> edgeCaseMessages() {
  const std::size_t pack = packSize<T>;
  const std::size_t capacity = capacityOf<T>();
  return {{1},
          {pack, true},
          {pack + 1, false, 1, 0},
          {8 * pack - 1, false, 0, 1},
          {capacity},
          {capacity - 1, true, 1},
          {3},
          {17 * pack + 1, false, 1, 1},
          {capacity, true}};
}

template <Protocol protocol>
Shape smallShape(int ranks) {
  if (Backend<>::onGpu) return {ranks, 2, 2};
  const int warps = maxEmulatedThreads / (ranks * widthFor(protocol));
  return {ranks, warps >= 4 ? 2 : 1, warps >= 2 ? 2 : 1};
}

template <Protocol protocol, int Ranks>
void checkFixedTeam() {
  CAPTURE(Ranks);
  PacketTester<protocol, Ranks> run(Ranks, capacityPacks);
  run.check(smallShape<protocol>(Ranks), edgeCaseMessages<float>());
  run.check(smallShape<protocol>(Ranks), {{0}, {5}, {capacityOf<float>()}});
}

TEST_CASE("packets: fixed team sizes") {
  forEachProtocol([](auto tag) {
    constexpr Protocol protocol = tag.value;
    CAPTURE(protocol);
    checkFixedTeam<protocol, 2>();
    if constexpr (!Backend<>::onGpu) checkFixedTeam<protocol, 3>();
    if constexpr (!detectsRaces) {
      checkFixedTeam<protocol, 4>();
      checkFixedTeam<protocol, 8>();
      if constexpr (!Backend<>::onGpu) checkFixedTeam<protocol, 5>();
    }
  });
}

TEST_CASE("packets: team sizes known only at run time") {
  forEachProtocol([](auto tag) {
    constexpr Protocol protocol = tag.value;
    CAPTURE(protocol);
    for (const int ranks : thinned({2, 3, 4, 5, 6, 7, 8}, {2, 5})) {
      CAPTURE(ranks);
      PacketTester<protocol> run(ranks, capacityPacks);
      run.check(smallShape<protocol>(ranks), edgeCaseMessages<float>());
      run.check(smallShape<protocol>(ranks), {{capacityOf<float>()}, {2}});
    }
  });
}

template <class T, class Op>
void checkElements() {
  PacketTester<Protocol::LL16, 2, T, Op> run(2, capacityPacks);
  run.check(smallShape<Protocol::LL16>(2), edgeCaseMessages<T>());
  PacketTester<Protocol::Sentinel, 0, T, Op> anySize(3, capacityPacks);
  anySize.check(smallShape<Protocol::Sentinel>(3), edgeCaseMessages<T>());
}

TEST_CASE("packets: element types and operators") {
  checkElements<std::int8_t, Sum>();
  checkElements<bf16, Average>();
  checkElements<double, Product>();
  if constexpr (!Backend<>::onGpu && !detectsRaces) {
    checkElements<std::uint16_t, Max>();
    checkElements<f16, Min>();
    checkElements<f8e4m3, Sum>();
  }
}

/// An operator that is chosen at run time against one that is not. tests/basic/ has all operators and types.
template <Protocol protocol, int Ranks, class T, class Op>
void checkRuntimeOp(int ranks) {
  using Collective = AllReduce<T, RuntimeOp, packetConfig<protocol, Ranks>>;
  AllReduceTester<Collective, Op, Backend<widthFor(protocol)>> run(ranks, capacityPacks);
  run.check(smallShape<protocol>(ranks), edgeCaseMessages<T>());
}

TEST_CASE("packets: an operator that is chosen at run time") {
  checkRuntimeOp<Protocol::LL16, 2, bf16, Average>(2);
  checkRuntimeOp<Protocol::Sentinel, 0, std::int16_t, Min>(3);
}

/// An operator of a user, with state: the sum, limited to [-limit, limit] after each addition.
struct LimitedSum {
  float limit;

  MSCCLPP_HOST_DEVICE float combine(float a, float b) const {
    const float sum = a + b;
    return sum > limit ? limit : sum < -limit ? -limit : sum;
  }
  MSCCLPP_HOST_DEVICE float finish(float total, int /*ranks*/) const { return total; }
};
static_assert(ReductionOperator<LimitedSum, float> && !StatelessOperator<LimitedSum>);

/// An all-reduce whose callers do not know that its operator has state.
template <AllReduceConfig config>
struct LimitedAllReduce : AllReduce<float, LimitedSum, config> {
  using Base = AllReduce<float, LimitedSum, config>;
  using Args = typename AllReduce<float, Sum, config>::Args;

  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    return Base::run(grid, typename Base::Args{args, {5}}, source, sink);
  }
};
/// The same operator for the reference.
struct LimitedTo5 {
  static float combine(float a, float b) { return LimitedSum{5}.combine(a, b); }
  static float finish(float total, int /*ranks*/) { return total; }
};

TEST_CASE("packets: an operator of a user, with state") {
  using Collective = LimitedAllReduce<packetConfig<Protocol::LL16>>;
  AllReduceTester<Collective, LimitedTo5, Backend<>> run(3, capacityPacks);
  run.check(smallShape<Protocol::LL16>(3), edgeCaseMessages<float>());
}

static_assert(std::is_same_v<ArgsWithOperator<CollectiveArgs<2, int>, Sum>, CollectiveArgs<2, int>>);
static_assert(std::is_same_v<AllReduce<float, Max, packetConfig<Protocol::LL16>>::Args,
                             AllReduce<float, Sum, packetConfig<Protocol::LL16>>::Args>);

TEST_CASE("packets: many more calls than slots, with different lengths and late ranks") {
  forEachProtocol([](auto tag) {
    constexpr Protocol protocol = tag.value;
    CAPTURE(protocol);
    PacketTester<protocol> run(3, capacityPacks);
    run.faults.allRanksSlow = true;
    run.faults.delay = 20'000;
    std::mt19937_64 random(7);
    for (int launch = 0; launch < 4; ++launch) {
      std::vector<Message> messages;
      for (int m = 0; m < maxMessages; ++m) {
        const std::size_t count = random() % 3 == 0 ? random() % capacityOf<float>() : random() % 40;
        messages.push_back({count, random() % 2 == 0, static_cast<int>(random() % 4), static_cast<int>(random() % 4)});
      }
      run.check(smallShape<protocol>(3), messages);
    }
  });
}

TEST_CASE("packets: calls with different grids advance every epoch word by one") {
  forEachProtocol([](auto tag) {
    constexpr Protocol protocol = tag.value;
    CAPTURE(protocol);
    PacketTester<protocol> run(2, capacityPacks);
    std::uint64_t epoch = 1;
    for (const auto& grid : {std::pair{1, 1}, {3, 1}, {2, 1}, {1, 3}, {3, 1}, {1, 2}, {2, 1}}) {
      const int blocks = grid.first;
      const int warps = grid.second;
      CAPTURE(blocks);
      CAPTURE(warps);
      run.check({2, blocks, warps}, {{capacityOf<float>()}, {9}});
      epoch += 2;
      for (int rank = 0; rank < 2; ++rank) CHECK(run.epochs(rank) == std::vector<std::uint64_t>(maxBlocks, epoch));
    }
  });
}

TEST_CASE("packets: the 32-bit flag wraps") {
  forEachProtocol([](auto tag) {
    constexpr Protocol protocol = tag.value;
    CAPTURE(protocol);
    constexpr std::uint64_t wrap = std::uint64_t{1} << 32;
    for (const std::uint64_t first : {wrap - 6, wrap - 5, wrap - 1}) {
      PacketTester<protocol> run(2, capacityPacks, first);
      const std::size_t longest = capacityOf<float>();
      run.check(smallShape<protocol>(2), {{longest}, {7}, {longest}, {longest}, {1}, {longest}, {longest}, {longest}});
      const bool skipsZero = protocol == Protocol::LL8 || protocol == Protocol::LL16;
      CHECK(run.epochs(0).front() == first + 8 + (skipsZero ? 2 : 0));
    }
  });
}

TEST_CASE("packets: no slot keeps a 32-bit flag until it repeats") {
  forEachProtocol([](auto tag) {
    constexpr Protocol protocol = tag.value;
    if constexpr (protocol == Protocol::LL8 || protocol == Protocol::LL16) {
      CAPTURE(protocol);
      constexpr std::uint32_t first = 0x12345677;
      PacketTester<protocol> run(3, capacityPacks, first);
      const auto slotsWithFirstFlags = [&] {
        std::ptrdiff_t count = 0;
        for (int rank = 0; rank < 3; ++rank) {
          for (const std::uint32_t word : run.scratch(rank)) count += word == first || word == first + 1;
        }
        return count;
      };
      const std::size_t longest = capacityOf<float>();
      run.check(smallShape<protocol>(3), {{longest}, {longest}});
      const std::ptrdiff_t all = slotsWithFirstFlags();
      CHECK(all > 0);
      run.check(smallShape<protocol>(3), {{5}, {5}});
      CHECK(slotsWithFirstFlags() > all / 2);
      run.setEpoch(std::uint64_t{1} << 30);
      run.check(smallShape<protocol>(3), {{9}, {longest / 2}});
      CHECK(slotsWithFirstFlags() == 0);
      run.setEpoch((std::uint64_t{1} << 32) + first);
      run.check(smallShape<protocol>(3), {{longest}, {longest}, {1}, {longest}});
    }
  });
}

TEST_CASE("packets: a rank that does not arrive, or whose packets are lost, leaves a record") {
  forEachProtocol([](auto tag) {
    constexpr Protocol protocol = tag.value;
    CAPTURE(protocol);
    {
      PacketTester<protocol> run(3, capacityPacks);
      run.timeout = 100'000'000;
      run.faults.absentRank = 1;
      const auto outcome = run.run(smallShape<protocol>(3), {{capacityOf<float>()}});
      REQUIRE(outcome.record);
      CHECK(outcome.record->outcome == WaitOutcome::Deadline);
      CHECK((outcome.record->operation == WaitOperation::Packet ||
             outcome.record->operation == WaitOperation::GridBarrier));
      CHECK(outcome.record->rank != 1);
    }
    {
      const auto attempt = [](std::uint64_t timeout) {
        PacketTester<protocol> run(3, capacityPacks);
        run.timeout = timeout;
        run.faults.dropFrom = 2;
        run.faults.dropTo = 0;
        return run.run(smallShape<protocol>(3), {{capacityOf<float>()}});
      };
      const auto outcome = withEnoughTime(attempt, 0, 2);
      REQUIRE(outcome.record);
      CHECK(outcome.record->outcome == WaitOutcome::Deadline);
      CHECK(outcome.record->expected == 1);
      // With a run-time team size each peer is waited for separately, so the record names it.
      if (outcome.record->rank == 0) CHECK(outcome.record->peer == 2);
      CHECK(outcome.difference != "");
    }
  });
}

// Logic of one thread.
#if !MSCCLPP_TEST_TSAN
template <Protocol protocol>
void checkScratch() {
  using Collective = AllReduce<float, Sum, packetConfig<protocol>>;
  using P = typename PackProtocolOf<protocol>::Type;
  constexpr int arrays = allReducePattern == Pattern::OneShot ? 1 : 2;
  for (std::size_t capacity = 0; capacity <= 130; ++capacity) {
    for (int ranks = 2; ranks <= 9; ++ranks) {
      const auto scratch = Collective::scratchFor(capacity * packSize<float>, ranks);
      for (std::size_t packs = 0; packs <= capacity; ++packs) {
        typename Collective::Args args{};
        args.team = decltype(args.team)(0, ranks);
        args.scratch = scratch;
        args.count = packs * packSize<float>;
        REQUIRE(Collective::accepts(args, {1, 1}));
        const EvenSlices<float, std::size_t> slices(args.count, ranks);
        const WholeMessage<float, std::size_t> whole(args.count);
        REQUIRE(scratch.arrayPacks >= (arrays == 1 ? whole.longest() : slices.longest()));
        std::size_t sum = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          if (slices.packs(rank) > 0) REQUIRE(slices.first(rank, 0) == sum * packSize<float>);
          REQUIRE(slices.packs(rank) <= slices.longest());
          sum += slices.packs(rank);
        }
        REQUIRE(sum == packs);
      }
      std::vector<std::size_t> starts;
      for (std::uint64_t epoch = 6; epoch <= 7; ++epoch) {
        for (int array = 0; array < arrays; ++array) {
          for (int from = 1; from < ranks; ++from) starts.push_back(scratch.offset(epoch, array, from, 0));
        }
      }
      starts.push_back(scratch.windowBytes());
      std::sort(starts.begin(), starts.end());
      REQUIRE(starts.back() == scratch.windowBytes());
      REQUIRE(starts.front() >= scratch.callOffset(ranks));
      for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
        REQUIRE(starts[i] % 16 == 0);
        REQUIRE(starts[i + 1] - starts[i] >= P::bytes(scratch.arrayPacks));
      }
    }
  }
}

TEST_CASE("packets: slices cover the message, and slot arrays of all senders do not overlap") {
  checkScratch<Protocol::LL8>();
  checkScratch<Protocol::LL16>();
  checkScratch<Protocol::LL128>();
  checkScratch<Protocol::Sentinel>();
}
#endif

/// A wrong operation in place of stage::reduce: each rank reduces in an order that starts with itself.
template <int array, class Op>
struct OwnRankFirst : stage::Operation {
  static constexpr std::uint32_t received = 1u << array;

  template <class C, class At, int n>
  MSCCLPP_INLINE bool apply(C& call, const At (&at)[n], Word128 (&words)[n]) const {
    using T = typename C::Layout::Element;
    call.startReceiving();
    const auto& team = call.session.team();
    PackReducer<T, Op> reducer(fromWord<T>(words[0]), Op{});
    for (int i = 0; i < team.size() - 1; ++i) {
      const int peers[1] = {team.peer(i)};
      Word128 received[1] = {};
      call.session.template receive<1>(array, peers, at, received);
      reducer.add(fromWord<T>(received[0]));
    }
    words[0] = toWord<T>(reducer.finish(team.size()));
    return true;
  }
};

template <class T, class Op, AllReduceConfig config>
struct OwnRankFirstAllReduce : AllReduce<T, Op, config> {
  using Args = typename AllReduce<T, Op, config>::Args;

  template <class GridType, class Source, class Sink>
  static MSCCLPP_INLINE bool run(const GridType& grid, const Args& args, const Source& source, const Sink& sink) {
    using namespace stage;
    auto&& trace = traceOf(grid);
    auto wait = args.wait;
    PacketSession session(grid, args, wait, trace);
    const WholeMessage<T, rows::PackCount> message(args.count);
    return session.run(ownSlice(message) | from(source) | share<0>() | OwnRankFirst<0, Op>{} | into(sink));
  }
};

TEST_CASE("packets: these checks detect a reduction whose order depends on the rank") {
  if constexpr (allReducePattern == Pattern::OneShot) {
    using Wrong = OwnRankFirstAllReduce<float, Sum, packetConfig<Protocol::LL16>>;
    AllReduceTester<Wrong, Sum, Backend<>> run(4, capacityPacks);
    const auto outcome = run.run(smallShape<Protocol::LL16>(4), {{capacityOf<float>()}});
    CHECK_FALSE(outcome.record);
    CHECK(outcome.difference.find("output differs") != std::string::npos);
    // For integers the order does not matter: it has no other error.
    using Right = OwnRankFirstAllReduce<std::int32_t, Sum, packetConfig<Protocol::LL16>>;
    AllReduceTester<Right, Sum, Backend<>> sameBits(4, capacityPacks);
    sameBits.check(smallShape<Protocol::LL16>(4), edgeCaseMessages<std::int32_t>());
  }
}

}  // namespace mscclpp::test
