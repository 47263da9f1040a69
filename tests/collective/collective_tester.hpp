// Runs a collective other than an all-reduce on a backend and checks it: every byte of the buffers of every rank, and
// the number of calls of source and sink.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/collective/all_gather.hpp"
#include "mscclpp/collective/all_to_all.hpp"
#include "mscclpp/collective/broadcast.hpp"
#include "mscclpp/collective/gather.hpp"
#include "mscclpp/collective/reduce.hpp"
#include "mscclpp/collective/reduce_scatter.hpp"
#include "mscclpp/collective/scatter.hpp"
#include "mscclpp/sync/grid_barrier.hpp"
#include "reference.hpp"
#include "tests/backend/backend.hpp"

namespace mscclpp::test {

/// What a collective does, as its caller sees it.
struct Meaning {
  bool inputHasParts;   ///< one part for each rank, of count elements
  bool outputHasParts;  ///< one part from each rank
  bool onlyRootHasInput;
  bool onlyRootHasOutput;
  bool isReduction;
  bool hasInPlace = true;
};
template <class C>
inline constexpr Meaning meaningOf{};
template <class T, CollectiveConfig config>
inline constexpr Meaning meaningOf<AllGather<T, config>>{false, true, false, false, false};
template <class T, class Op, CollectiveConfig config>
inline constexpr Meaning meaningOf<ReduceScatter<T, Op, config>>{true, false, false, false, true};
template <class T, CollectiveConfig config>
inline constexpr Meaning meaningOf<AllToAll<T, config>>{true, true, false, false, false, false};
template <class T, CollectiveConfig config>
inline constexpr Meaning meaningOf<Broadcast<T, config>>{false, false, true, false, false};
template <class T, class Op, CollectiveConfig config>
inline constexpr Meaning meaningOf<Reduce<T, Op, config>>{false, false, false, true, true};
template <class T, CollectiveConfig config>
inline constexpr Meaning meaningOf<Gather<T, config>>{false, true, false, true, false};
template <class T, CollectiveConfig config>
inline constexpr Meaning meaningOf<Scatter<T, config>>{true, false, true, false, false};

/// A call: args.count, the root, and the offsets of input and output, in elements from a 128-byte boundary.
struct TestCall {
  std::size_t count;
  int root = 0;
  bool inPlace = false;
  int inputShift = 0;
  int outputShift = 0;
};

/// The same for the kernel of a rank: byte offsets into the data and counter windows.
struct CallLayout {
  std::size_t count;
  int root;
  std::size_t input;
  std::size_t output;
  std::size_t sourceCalls;
  std::size_t sinkCalls;
};

inline constexpr int maxTestCalls = 16;
inline constexpr int maxTestRanks = 8;
inline constexpr std::size_t barrierBytes = 128;

/// Counts the calls of a source or sink per pack of each part; a wrong call counts 1000.
template <class T>
MSCCLPP_INLINE void countCall(std::uint32_t* calls, std::size_t count, std::size_t first, int valid) {
  const std::size_t size = packSize<T>;
  const std::size_t inPart = first % count;
  const std::size_t left = count - inPart;
  const bool right = inPart % size == 0 && static_cast<std::size_t>(valid) == (left < size ? left : size);
  arch::fetchAdd<arch::Order::Relaxed, arch::Scope::Device>(
      &calls[first / count * ceilDivide(count, size) + inPart / size], right ? 1u : 1000u);
}
MSCCLPP_INLINE void spendTime(std::uint64_t nanoseconds) {
  if (nanoseconds == 0) return;
  const auto start = arch::nanoseconds();
  while (arch::nanoseconds() - start < nanoseconds) arch::backoff(200);
}
template <class T>
struct PartSource {
  ArraySource<T> from;
  std::uint32_t* calls;
  std::size_t count;

  MSCCLPP_HOST_DEVICE Pack<T> operator()(std::size_t first, int valid) const {
    countCall<T>(calls, count, first, valid);
    return from(first, valid);
  }
};
template <class T>
struct PartSink {
  ArraySink<T> to;
  std::uint32_t* calls;
  std::size_t count;
  std::uint64_t nanoseconds;

  MSCCLPP_HOST_DEVICE void operator()(std::size_t first, const Pack<T>& result, int valid) const {
    countCall<T>(calls, count, first, valid);
    spendTime(nanoseconds);
    to(first, result, valid);
  }
};

/// Injected faults.
struct CallFaults {
  std::uint64_t delays = 0;  ///< nanoseconds: ranks wait before their calls, in a pattern that differs
  int slowRank = -1;         ///< rank whose sink takes `sinkDelay` nanoseconds per call
  std::uint64_t sinkDelay = 0;
  int absentRank = -1;  ///< rank that makes no call
  int wrongSlots = 0;   ///< > 0: a ring of so few slots; with packets, all sets of slots and senders are one
};

/// The parameters of the kernels of all ranks.
struct CollectiveParameters {
  Window<> scratch, epochs, data, counters, barriers;
  std::size_t maxCount;
  PipelineShape shape;
  BoundedWait wait;
  int ranks;
  int calls;
  ReduceOp op;  ///< of a collective whose operator is chosen at run time
  CallFaults faults;
  CallLayout call[maxTestRanks][maxTestCalls];
};

/// Runs the calls in sequence in one launch. onArrays: source and sink are arrays.
template <class Collective, bool onArrays>
struct CollectiveBody {
  using T = typename Collective::Element;
  CollectiveParameters p;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    if (rank == p.faults.absentRank) return;
    typename Collective::Args args{};
    args.team = decltype(args.team)(rank, p.ranks);
    for (int r = 0; r < p.ranks; ++r) args.window.base[r] = p.scratch.at(r);
    args.epochs = {reinterpret_cast<std::uint64_t*>(p.epochs.at(rank))};
    args.scratch = Collective::scratchFor(p.maxCount, p.ranks, p.shape);
    if (p.faults.wrongSlots > 0) {
      if constexpr (isPipelined(Collective::configuration.protocol)) {
        args.scratch.slots = p.faults.wrongSlots;
      } else if constexpr (!takesAnySize(Collective::configuration.protocol)) {
        args.scratch.arrayPacks = 0;
      }
    }
    args.wait = p.wait;
    if constexpr (requires { args.op.op; }) args.op = {p.op};
    auto barrierWait = p.wait;
    auto* barrier = reinterpret_cast<GridBarrier*>(p.barriers.at(rank));
    auto* failures = reinterpret_cast<std::uint32_t*>(p.barriers.at(rank, barrierBytes));
    for (int index = 0; index < p.calls; ++index) {
      const CallLayout& call = p.call[rank][index];
      args.count = call.count;
      if constexpr (requires { args.root; }) args.root = call.root;
      spendTime(p.faults.delays * (static_cast<std::uint64_t>(index * 5 + rank * 3) % 4));
      const ArraySource<T> from(reinterpret_cast<const T*>(p.data.at(rank, call.input)));
      const ArraySink<T> to(reinterpret_cast<T*>(p.data.at(rank, call.output)));
      bool succeeded = true;
      if constexpr (requires { args.outputs; }) {
        for (int r = 0; r < p.ranks; ++r) args.outputs.base[r] = p.data.at(r, p.call[r][index].output);
      }
      if constexpr (onArrays) {
        succeeded = Collective::run(grid, args, from, to);
      } else {
        const PartSource<T> source{from, reinterpret_cast<std::uint32_t*>(p.counters.at(rank, call.sourceCalls)),
                                   call.count};
        const PartSink<T> sink{to, reinterpret_cast<std::uint32_t*>(p.counters.at(rank, call.sinkCalls)), call.count,
                               rank == p.faults.slowRank ? p.faults.sinkDelay : 0};
        succeeded = Collective::run(grid, args, source, sink);
      }
      if (!succeeded) arch::fetchAdd<arch::Order::Relaxed, arch::Scope::Device>(failures, 1u);
      barrier->sync(grid, barrierWait);
    }
  }
};

/// What the tester needs of a collective: the same type for all collectives of elements T.
struct CollectiveTraits {
  Meaning meaning;
  std::size_t windowBytes;
  Range counters;            ///< bytes of the words in the window that start at `firstCount`
  std::uint64_t firstCount;  ///< before the skipped epochs
  int initialByte;
  std::uint64_t firstEpoch;
};

/// Runs calls with scratch and epochs that persist between launches, and checks them.
template <class T, int Width>
class CollectiveTester {
 public:
  CallFaults faults;
  std::uint64_t timeout = waitTimeout;
  ReduceOp op = ReduceOp::SUM;  ///< what the collective computes, if it reduces

  struct Outcome {
    std::optional<WaitRecord> record;
    std::string difference;  ///< the first error, or empty
    std::size_t failures;    ///< threads and calls whose run() returned false
  };

  virtual ~CollectiveTester() = default;

  /// Runs the calls in one launch and checks everything.
  void check(const Shape& shape, const std::vector<TestCall>& calls) {
    const auto outcome = run(shape, calls);
    if (outcome.record) {
      FAIL_CHECK(describe(*outcome.record));
      return;
    }
    CHECK(outcome.difference == "");
    CHECK(outcome.failures == 0);
  }

  Outcome run(Shape shape, const std::vector<TestCall>& calls) {
    REQUIRE(calls.size() <= maxTestCalls);
    shape.ranks = ranks_;
    const auto ranks = static_cast<std::size_t>(ranks_);
    const Meaning& meaning = traits_.meaning;
    CollectiveParameters body{};
    body.calls = static_cast<int>(calls.size());
    std::vector<std::vector<unsigned char>> expected(ranks);
    std::vector<std::vector<std::uint32_t>> expectedCalls(ranks);
    std::vector<std::function<void()>> uploads;
    std::vector<std::size_t> dataSizes(ranks, 0);
    std::vector<std::vector<std::vector<T>>> inputs;
    for (std::size_t index = 0; index < calls.size(); ++index) {
      const TestCall& call = calls[index];
      inputs.push_back(inputsOf<T>(call.count * (meaning.inputHasParts ? ranks : 1), ranks_, ++seed_));
      for (std::size_t rank = 0; rank < ranks; ++rank) layOut(body, rank, index, call, expected, expectedCalls, inputs);
    }
    std::size_t bytes = 0;
    for (auto& of : expected) bytes = std::max(bytes, of.size());
    std::size_t counters = 0;
    for (auto& of : expectedCalls) counters = std::max(counters, of.size());
    for (auto& of : expected) of.resize(bytes, poisonByte);
    for (auto& of : expectedCalls) of.resize(counters, 0);

    auto data = backend_.allocate(ranks_, bytes, poisonByte);
    auto callCounters = backend_.allocate(ranks_, counters * sizeof(std::uint32_t), 0);
    auto barriers = backend_.allocate(ranks_, 2 * barrierBytes, 0);
    for (std::size_t index = 0; index < calls.size(); ++index) {
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        if (hasInput(calls[index], rank)) {
          data.write(static_cast<int>(rank), inputs[index][rank], body.call[rank][index].input);
        }
      }
    }
    body.scratch = scratch_.window();
    body.epochs = epochs_.window();
    body.data = data.window();
    body.counters = callCounters.window();
    body.barriers = barriers.window();
    body.maxCount = maxCount_;
    body.shape = shape_;
    body.wait = backend_.wait(timeout);
    body.ranks = ranks_;
    body.op = op;
    body.faults = faults;
    Outcome outcome{launch(backend_, shape, body), "", 0};

    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto actual = data.template read<unsigned char>(static_cast<int>(rank));
      if (meaning.isReduction) acceptAnyNan(expected[rank], actual, body.call[rank], calls.size());
      const auto at = firstDifference(expected[rank], actual);
      const std::string who = "rank " + std::to_string(rank) + ": ";
      if (at >= 0 && outcome.difference.empty()) {
        outcome.difference = who + describeLocation(body.call[rank], calls, static_cast<std::size_t>(at));
      }
      outcome.failures +=
          barriers.template read<std::uint32_t>(static_cast<int>(rank))[barrierBytes / sizeof(std::uint32_t)];
      const auto made = callCounters.template read<std::uint32_t>(static_cast<int>(rank));
      if (countsCalls_ && made != expectedCalls[rank] && outcome.difference.empty()) {
        outcome.difference = who + "a pack had a wrong number of calls of its source or sink";
      }
    }
    return outcome;
  }

  std::uint64_t epoch() const { return epochs_.template read<std::uint64_t>(0).front(); }

 protected:
  using BackendType = Backend<Width>;
  using Buffers = decltype(std::declval<BackendType>().allocate(0, 0, 0));

  CollectiveTester(int ranks, std::size_t maxCount, const PipelineShape& shape, const CollectiveTraits& traits,
                   std::uint64_t skippedEpochs, bool countsCalls)
      : ranks_(ranks),
        maxCount_(maxCount),
        shape_(shape),
        traits_(traits),
        countsCalls_(countsCalls),
        scratch_(backend_.allocate(ranks, traits.windowBytes, traits.initialByte)),
        epochs_(backend_.allocate(ranks, epochWords * sizeof(std::uint64_t), 0)) {
    const std::uint64_t epoch = traits.firstEpoch + skippedEpochs;
    for (int rank = 0; rank < ranks; ++rank) {
      epochs_.write(rank, std::vector<std::uint64_t>(epochWords, epoch));
      const std::size_t words = traits.counters.size() / sizeof(std::uint64_t);
      const std::uint64_t count = traits.firstCount + skippedEpochs;
      scratch_.write(rank, std::vector<std::uint64_t>(words, count), traits.counters.begin);
    }
  }

  virtual std::optional<WaitRecord> launch(BackendType& backend, const Shape& shape,
                                           const CollectiveParameters& parameters) = 0;

 private:
  bool hasInput(const TestCall& call, std::size_t rank) const {
    return !traits_.meaning.onlyRootHasInput || rank == static_cast<std::size_t>(call.root);
  }
  bool hasOutput(const TestCall& call, std::size_t rank) const {
    return !traits_.meaning.onlyRootHasOutput || rank == static_cast<std::size_t>(call.root);
  }

  /// Reserves the buffers and counters of a call of a rank, and computes what is expected there.
  void layOut(CollectiveParameters& body, std::size_t rank, std::size_t index, const TestCall& call,
              std::vector<std::vector<unsigned char>>& expected, std::vector<std::vector<std::uint32_t>>& expectedCalls,
              const std::vector<std::vector<std::vector<T>>>& inputs) {
    const Meaning& meaning = traits_.meaning;
    const auto ranks = static_cast<std::size_t>(ranks_);
    auto& buffer = expected[rank];
    auto& counters = expectedCalls[rank];
    CallLayout& layout = body.call[rank][index];
    layout.count = call.count;
    layout.root = call.root;
    const std::size_t inputs1 = meaning.inputHasParts ? ranks : 1;
    const std::size_t outputs = meaning.outputHasParts ? ranks : 1;
    const auto reserve = [&](int shift, std::size_t parts) {
      const std::size_t at = roundUp(buffer.size(), 128) + static_cast<std::size_t>(shift) * sizeof(T);
      buffer.resize(at + parts * call.count * sizeof(T) + 16, poisonByte);
      return at;
    };
    const auto addCounters = [&](std::size_t parts, std::uint32_t value) {
      const std::size_t at = counters.size() * sizeof(std::uint32_t);
      counters.resize(counters.size() + parts * ceilDivide(call.count, packSize<T>), value);
      return at;
    };
    // Where a rank has no input or no output, its place stays poisoned.
    const bool inPlace = call.inPlace && meaning.hasInPlace && hasInput(call, rank) && hasOutput(call, rank);
    const std::size_t ownPart = rank * call.count * sizeof(T);
    if (inPlace && inputs1 < outputs) {
      layout.output = reserve(call.outputShift, outputs);
      layout.input = layout.output + ownPart;
    } else {
      layout.input = reserve(call.inputShift, inputs1);
      layout.output = inPlace ? layout.input + (outputs < inputs1 ? ownPart : 0) : reserve(call.outputShift, outputs);
    }
    layout.sourceCalls = addCounters(inputs1, hasInput(call, rank) ? 1 : 0);
    layout.sinkCalls = addCounters(outputs, hasOutput(call, rank) ? 1 : 0);
    if (call.count == 0) return;
    const auto& of = inputs[index];
    if (hasInput(call, rank)) std::memcpy(&buffer[layout.input], of[rank].data(), of[rank].size() * sizeof(T));
    if (!hasOutput(call, rank)) return;
    const auto store = [&](std::size_t part, const T* from) {
      std::memcpy(&buffer[layout.output + part * call.count * sizeof(T)], from, call.count * sizeof(T));
    };
    const std::size_t mine = meaning.inputHasParts ? rank * call.count : 0;  // in a rank's input
    if (meaning.isReduction) {
      const auto reduced = visit(
          op, [&](auto tag) { return referenceOf<T, typename decltype(tag)::Type>(of); },
          [] { return std::vector<T>(); });
      store(0, reduced.data() + mine);
    } else if (meaning.outputHasParts) {
      for (std::size_t r = 0; r < ranks; ++r) store(r, of[r].data() + mine);
    } else {
      store(0, of[static_cast<std::size_t>(call.root)].data() + mine);
    }
  }

  /// Where the reference of a reduction has a NaN, any NaN is accepted.
  static void acceptAnyNan(std::vector<unsigned char>& wanted, const std::vector<unsigned char>& actual,
                           const CallLayout (&layouts)[maxTestCalls], std::size_t calls) {
    for (std::size_t index = 0; index < calls; ++index) {
      for (std::size_t i = 0; i < layouts[index].count; ++i) {
        const std::size_t at = layouts[index].output + i * sizeof(T);
        T reference;
        T value;
        std::memcpy(&reference, &wanted[at], sizeof(T));
        std::memcpy(&value, &actual[at], sizeof(T));
        if (isNan(reference) && isNan(value)) std::memcpy(&wanted[at], &value, sizeof(T));
      }
    }
  }

  static std::string describeLocation(const CallLayout (&layouts)[maxTestCalls], const std::vector<TestCall>& calls,
                                      std::size_t byte) {
    std::string text = "byte " + std::to_string(byte) + " differs; calls have their input and output at";
    for (std::size_t index = 0; index < calls.size(); ++index) {
      text += " " + std::to_string(layouts[index].input) + "," + std::to_string(layouts[index].output);
    }
    return text;
  }

  BackendType backend_;
  int ranks_;
  std::size_t maxCount_;
  PipelineShape shape_;
  CollectiveTraits traits_;
  bool countsCalls_;
  Buffers scratch_;
  Buffers epochs_;
  unsigned seed_ = 0;
};

/// The width of warps in emulation. LL128 needs 16 lanes or more.
inline constexpr int warpWidthFor(Protocol protocol) {
  return protocol == Protocol::LL128 || protocol == Protocol::LL128Ordered ? 16 : 4;
}

template <class Collective, bool isSerial = false>
class TesterOf final : public CollectiveTester<typename Collective::Element,
                                               isSerial ? 1 : warpWidthFor(Collective::configuration.protocol)> {
  static constexpr int width = isSerial ? 1 : warpWidthFor(Collective::configuration.protocol);
  using Base = CollectiveTester<typename Collective::Element, width>;
  /// On a CPU thread, and where the peers write the outputs: the sink gets this rank's own part only.
  static constexpr bool onArrays = isSerial || Collective::configuration.link == Link::Outputs;

 public:
  /// skippedEpochs: the first call has as many before it.
  TesterOf(int ranks, std::size_t maxCount, const PipelineShape& shape, std::uint64_t skippedEpochs = 0)
      : Base(ranks, maxCount, shape, traitsOf(Collective::scratchFor(maxCount, ranks, shape)), skippedEpochs,
             !onArrays) {}

 private:
  static CollectiveTraits traitsOf(const typename Collective::Scratch& scratch) {
    Range counters{0, 0};
    std::uint64_t firstCount = 0;
    if constexpr (takesAnySize(Collective::configuration.protocol)) {
      counters = {scratch.countersOffset(), scratch.countersOffset() + scratch.countersBytes()};
      // A counter at the epoch would say that the peer has entered the call.
      firstCount = Collective::Scratch::firstEpoch - (Collective::Scratch::reuse == SlotReuse::ByCredits ? 1 : 0);
    }
    return {
        meaningOf<Collective>,          scratch.windowBytes(), counters, firstCount, Collective::Scratch::initialByte,
        Collective::Scratch::firstEpoch};
  }
  std::optional<WaitRecord> launch(Backend<width>& backend, const Shape& shape,
                                   const CollectiveParameters& parameters) override {
    Shape withMemory = shape;
    if constexpr (requires(const typename Collective::Args& args) { Collective::sharedBytes(args, LaunchShape{}); }) {
      withMemory.sharedBytes = Collective::sharedBytes(typename Collective::Args{}, {shape.blocks, shape.warps});
    }
    return backend.run(withMemory, CollectiveBody<Collective, onArrays>{parameters});
  }
};

}  // namespace mscclpp::test
