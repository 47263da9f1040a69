// Runs a collective whose ranks contribute different numbers of elements on a backend and checks it: every byte of the
// buffers of every rank, and the number of calls of source and sink.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "collective_tester.hpp"
#include "mscclpp/collective/all_gather_v.hpp"
#include "mscclpp/collective/all_to_all_v.hpp"
#include "mscclpp/collective/reduce_scatter_v.hpp"
#include "reference.hpp"
#include "tests/backend/backend.hpp"

namespace mscclpp::test {

/// What a collective does, as its caller sees it.
enum class VariableKind { AllGather, ReduceScatter, AllToAll };

/// A call. counts[from][to]: elements of each pair of ranks in an all-to-all. The others have counts[0][r], for rank r.
struct VariableCall {
  std::vector<std::vector<std::size_t>> counts;
  std::size_t bound;  ///< args.count
  bool inPlace = false;
};

/// Parts of an input or output, in elements.
struct Parts {
  int parts;
  std::size_t counts[maxTestRanks];
  std::size_t offsets[maxTestRanks];
};

/// A call as the kernel of a rank gets it. Byte offsets into the data and counter windows.
struct VariableCallLayout {
  std::size_t bound;
  Parts in;
  Parts out;
  std::size_t input;
  std::size_t output;
  std::size_t sourceCalls;
  std::size_t sinkCalls;
};

/// Counts the calls of a source or sink per pack of each part, and behind them the calls that belong to no part; a
/// wrong call counts 1000.
template <class T>
MSCCLPP_INLINE void countPartCall(std::uint32_t* calls, const Parts& parts, std::size_t first, int valid) {
  const std::size_t size = packSize<T>;
  for (int part = 0; part < parts.parts; ++part) {
    const std::size_t count = parts.counts[part];
    if (first >= parts.offsets[part] && first - parts.offsets[part] < count) {
      const std::size_t at = first - parts.offsets[part];
      const std::size_t left = count - at;
      const bool right = at % size == 0 && static_cast<std::size_t>(valid) == (left < size ? left : size);
      arch::fetchAdd<arch::Order::Relaxed, arch::Scope::Device>(&calls[at / size], right ? 1u : 1000u);
      return;
    }
    calls += ceilDivide(count, size);
  }
  arch::fetchAdd<arch::Order::Relaxed, arch::Scope::Device>(calls, 1000u);
}
template <class T>
struct VariableSource {
  ArraySource<T> from;
  std::uint32_t* calls;
  const Parts& parts;

  MSCCLPP_HOST_DEVICE Pack<T> operator()(std::size_t first, int valid) const {
    countPartCall<T>(calls, parts, first, valid);
    return from(first, valid);
  }
};
template <class T>
struct VariableSink {
  ArraySink<T> to;
  std::uint32_t* calls;
  const Parts& parts;
  std::uint64_t nanoseconds;

  MSCCLPP_HOST_DEVICE void operator()(std::size_t first, const Pack<T>& result, int valid) const {
    countPartCall<T>(calls, parts, first, valid);
    spendTime(nanoseconds);
    to(first, result, valid);
  }
};

/// The parameters of the kernels of all ranks. layouts: an array of VariableCallLayout for each rank.
struct VariableParameters {
  Window<> scratch, epochs, data, counters, barriers, layouts;
  std::size_t maxCount;
  PipelineShape shape;
  BoundedWait wait;
  int ranks;
  int calls;
  CallFaults faults;
};

/// Runs the calls in sequence in one launch. isSerial: on a CPU thread, with arrays as source and sink.
template <class Collective, VariableKind kind, bool isSerial>
struct VariableBody {
  using T = typename Collective::Element;
  VariableParameters p;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    typename Collective::Args args{};
    args.team = decltype(args.team)(rank, p.ranks);
    for (int r = 0; r < p.ranks; ++r) args.window.base[r] = p.scratch.at(r);
    args.epochs = {reinterpret_cast<std::uint64_t*>(p.epochs.at(rank))};
    args.scratch = Collective::scratchFor(p.maxCount, p.ranks, p.shape);
    args.wait = p.wait;
    auto barrierWait = p.wait;
    auto* barrier = reinterpret_cast<GridBarrier*>(p.barriers.at(rank));
    auto* failures = reinterpret_cast<std::uint32_t*>(p.barriers.at(rank, barrierBytes));
    for (int index = 0; index < p.calls; ++index) {
      const auto& call = reinterpret_cast<const VariableCallLayout*>(p.layouts.at(rank))[index];
      args.count = call.bound;
      for (int r = 0; r < p.ranks; ++r) {
        if constexpr (kind == VariableKind::AllToAll) {
          args.sendCounts[r] = call.in.counts[r];
          args.sendOffsets[r] = call.in.offsets[r];
          args.receiveCounts[r] = call.out.counts[r];
          args.receiveOffsets[r] = call.out.offsets[r];
        } else {
          const Parts& parts = kind == VariableKind::AllGather ? call.out : call.in;
          args.counts[r] = parts.counts[r];
          args.offsets[r] = parts.offsets[r];
        }
      }
      spendTime(p.faults.delays * (static_cast<std::uint64_t>(index * 5 + rank * 3) % 4));
      const ArraySource<T> from(reinterpret_cast<const T*>(p.data.at(rank, call.input)));
      const ArraySink<T> to(reinterpret_cast<T*>(p.data.at(rank, call.output)));
      bool succeeded = true;
      if constexpr (isSerial) {
        succeeded = Collective::run(grid, args, from, to);
      } else {
        const VariableSource<T> source{from, reinterpret_cast<std::uint32_t*>(p.counters.at(rank, call.sourceCalls)),
                                       call.in};
        const VariableSink<T> sink{to, reinterpret_cast<std::uint32_t*>(p.counters.at(rank, call.sinkCalls)), call.out,
                                   rank == p.faults.slowRank ? p.faults.sinkDelay : 0};
        succeeded = Collective::run(grid, args, source, sink);
      }
      if (!succeeded) arch::fetchAdd<arch::Order::Relaxed, arch::Scope::Device>(failures, 1u);
      barrier->sync(grid, barrierWait);
    }
  }
};

/// Runs calls with scratch and epochs that persist between launches, and checks them. The same type for all collectives
/// of elements T.
template <class T, int Width>
class VariableTester {
 public:
  CallFaults faults;
  std::uint64_t timeout = waitTimeout;

  struct Outcome {
    std::optional<WaitRecord> record;
    std::string difference;  ///< the first error, or empty
    std::size_t failures;    ///< threads and calls whose run() returned false
  };

  virtual ~VariableTester() = default;

  /// Runs the calls in one launch and checks everything.
  void check(const Shape& shape, const std::vector<VariableCall>& calls) {
    const auto outcome = run(shape, calls);
    if (outcome.record) {
      FAIL_CHECK(describe(*outcome.record));
      return;
    }
    CHECK(outcome.difference == "");
    CHECK(outcome.failures == 0);
  }

  Outcome run(Shape shape, const std::vector<VariableCall>& calls) {
    shape.ranks = ranks_;
    const auto ranks = static_cast<std::size_t>(ranks_);
    std::vector<Expected> expected(ranks);
    for (const auto& call : calls) addCall(call, expected);
    std::size_t bytes = 0;
    std::size_t counters = 0;
    for (const auto& of : expected) {
      bytes = std::max(bytes, of.before.size());
      counters = std::max(counters, of.calls.size());
    }
    auto data = backend_.allocate(ranks_, bytes, poisonByte);
    auto callCounters = backend_.allocate(ranks_, counters * sizeof(std::uint32_t), 0);
    auto barriers = backend_.allocate(ranks_, 2 * barrierBytes, 0);
    auto layouts = backend_.allocate(ranks_, calls.size() * sizeof(VariableCallLayout), 0);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      auto& of = expected[rank];
      of.before.resize(bytes, poisonByte);
      of.after.resize(bytes, poisonByte);
      of.calls.resize(counters, 0);
      data.write(static_cast<int>(rank), of.before);
      layouts.write(static_cast<int>(rank), of.layouts);
    }
    const VariableParameters body{scratch_.window(),
                                  epochs_.window(),
                                  data.window(),
                                  callCounters.window(),
                                  barriers.window(),
                                  layouts.window(),
                                  maxCount_,
                                  shape_,
                                  backend_.wait(timeout),
                                  ranks_,
                                  static_cast<int>(calls.size()),
                                  faults};
    Outcome outcome{launch(backend_, shape, body), "", 0};

    for (std::size_t rank = 0; rank < ranks; ++rank) {
      auto& of = expected[rank];
      const auto actual = data.template read<unsigned char>(static_cast<int>(rank));
      if (kind_ == VariableKind::ReduceScatter) acceptAnyNan(of, actual);
      const auto at = firstDifference(of.after, actual);
      const std::string who = "rank " + std::to_string(rank) + ": ";
      if (at >= 0 && outcome.difference.empty()) {
        outcome.difference = who + "byte " + std::to_string(at) + " differs; calls have their output at";
        for (const auto& layout : of.layouts) outcome.difference += " " + std::to_string(layout.output);
      }
      outcome.failures +=
          barriers.template read<std::uint32_t>(static_cast<int>(rank))[barrierBytes / sizeof(std::uint32_t)];
      const auto made = callCounters.template read<std::uint32_t>(static_cast<int>(rank));
      if (countsCalls_ && made != of.calls && outcome.difference.empty()) {
        outcome.difference = who + "a pack had a wrong number of calls of its source or sink";
      }
    }
    return outcome;
  }

  std::uint64_t epoch() const { return epochs_.template read<std::uint64_t>(0).front(); }
  std::vector<std::byte> scratch(int rank) const { return scratch_.read(rank); }

 protected:
  using BackendType = Backend<Width>;
  using Buffers = decltype(std::declval<BackendType>().allocate(0, 0, 0));

  /// What the tester needs of a collective.
  struct Traits {
    VariableKind kind;
    std::size_t windowBytes;
    int initialByte;
    std::uint64_t firstEpoch;
    bool countsCalls;
  };

  VariableTester(int ranks, std::size_t maxCount, const PipelineShape& shape, const Traits& traits,
                 std::uint64_t skippedEpochs)
      : ranks_(ranks),
        maxCount_(maxCount),
        shape_(shape),
        kind_(traits.kind),
        countsCalls_(traits.countsCalls),
        scratch_(backend_.allocate(ranks, traits.windowBytes, traits.initialByte)),
        epochs_(backend_.allocate(ranks, epochWords * sizeof(std::uint64_t), 0)) {
    for (int rank = 0; rank < ranks; ++rank)
      epochs_.write(rank, std::vector<std::uint64_t>(epochWords, traits.firstEpoch + skippedEpochs));
  }

  virtual std::optional<WaitRecord> launch(BackendType& backend, const Shape& shape,
                                           const VariableParameters& parameters) = 0;

 private:
  /// The buffers of a rank before and after the calls, the calls of its sources and sinks, and where all that is.
  struct Expected {
    std::vector<unsigned char> before;
    std::vector<unsigned char> after;
    std::vector<std::uint32_t> calls;
    std::vector<VariableCallLayout> layouts;
  };

  /// The parts of the input of a rank, and those of its output, at offset 0 if it is one part and otherwise in a random
  /// order and with gaps.
  Parts partsOf(const VariableCall& call, std::size_t rank, bool isInput) {
    Parts result{};
    const bool isOne = isInput ? kind_ == VariableKind::AllGather : kind_ == VariableKind::ReduceScatter;
    if (isOne) {
      result.parts = 1;
      result.counts[0] = call.counts[0][rank];
      return result;
    }
    result.parts = ranks_;
    std::vector<std::size_t> order;
    for (std::size_t r = 0; r < static_cast<std::size_t>(ranks_); ++r) {
      const std::size_t row = kind_ != VariableKind::AllToAll ? 0 : isInput ? rank : r;
      result.counts[r] = call.counts[row][kind_ == VariableKind::AllToAll && !isInput ? rank : r];
      order.push_back(r);
    }
    std::shuffle(order.begin(), order.end(), random_);
    std::size_t next = 0;
    for (const std::size_t r : order) {
      next += random_() % 4;
      result.offsets[r] = next;
      next += result.counts[r];
    }
    return result;
  }
  static std::size_t extentOf(const Parts& parts) {
    std::size_t extent = 0;
    for (int part = 0; part < parts.parts; ++part) extent = std::max(extent, parts.offsets[part] + parts.counts[part]);
    return extent;
  }

  /// Reserves the buffers and counters of a call on all ranks, and computes what is expected there.
  void addCall(const VariableCall& call, std::vector<Expected>& expected) {
    const auto ranks = static_cast<std::size_t>(ranks_);
    std::vector<std::vector<std::vector<T>>> inputs(ranks);  // of a rank and part
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      VariableCallLayout layout{call.bound, partsOf(call, rank, true), partsOf(call, rank, false), 0, 0, 0, 0};
      auto& of = expected[rank];
      const auto reserve = [&](std::size_t elements) {
        const std::size_t at = roundUp(of.after.size(), 128) + random_() % 4 * sizeof(T);
        of.after.resize(at + elements * sizeof(T) + 16, poisonByte);
        return at;
      };
      const auto addCounters = [&](const Parts& parts) {
        const std::size_t at = of.calls.size() * sizeof(std::uint32_t);
        for (int part = 0; part < parts.parts; ++part)
          of.calls.resize(of.calls.size() + ceilDivide(parts.counts[part], packSize<T>), 1);
        of.calls.push_back(0);
        return at;
      };
      if (call.inPlace && kind_ == VariableKind::AllGather) {
        layout.output = reserve(extentOf(layout.out));
        layout.input = layout.output + layout.out.offsets[rank] * sizeof(T);
      } else {
        layout.input = reserve(extentOf(layout.in));
        layout.output = call.inPlace && kind_ == VariableKind::ReduceScatter
                            ? layout.input + layout.in.offsets[rank] * sizeof(T)
                            : reserve(extentOf(layout.out));
      }
      layout.sourceCalls = addCounters(layout.in);
      layout.sinkCalls = addCounters(layout.out);
      of.layouts.push_back(layout);
      for (int part = 0; part < layout.in.parts; ++part) {
        // The same seed on all ranks: reductions have inputs that belong together.
        const auto all = inputsOf<T>(layout.in.counts[part], ranks_, seed_ + static_cast<unsigned>(part));
        inputs[rank].push_back(all[rank]);
        store(of.after, layout.input, layout.in, part, all[rank]);
      }
      of.before.resize(of.after.size(), poisonByte);
      std::copy(of.after.begin() + static_cast<std::ptrdiff_t>(layout.input), of.after.end(),
                of.before.begin() + static_cast<std::ptrdiff_t>(layout.input));
    }
    seed_ += 8;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto& layout = expected[rank].layouts.back();
      for (std::size_t part = 0; part < static_cast<std::size_t>(layout.out.parts); ++part) {
        std::vector<T> result;
        if (kind_ == VariableKind::ReduceScatter) {
          std::vector<std::vector<T>> contributions;
          for (const auto& of : inputs) contributions.push_back(of[rank]);
          result = referenceOf<T, Sum>(contributions);
        } else {
          result = inputs[part][kind_ == VariableKind::AllGather ? 0 : rank];
        }
        store(expected[rank].after, layout.output, layout.out, static_cast<int>(part), result);
      }
    }
  }
  static void store(std::vector<unsigned char>& buffer, std::size_t at, const Parts& parts, int part,
                    const std::vector<T>& from) {
    if (from.empty()) return;
    std::memcpy(&buffer[at + parts.offsets[part] * sizeof(T)], from.data(), from.size() * sizeof(T));
  }

  /// Where the reference of a reduction has a NaN, any NaN is accepted.
  static void acceptAnyNan(Expected& wanted, const std::vector<unsigned char>& actual) {
    for (const auto& layout : wanted.layouts) {
      for (std::size_t i = 0; i < layout.out.counts[0]; ++i) {
        const std::size_t at = layout.output + i * sizeof(T);
        T reference;
        T value;
        std::memcpy(&reference, &wanted.after[at], sizeof(T));
        std::memcpy(&value, &actual[at], sizeof(T));
        if (isNan(reference) && isNan(value)) std::memcpy(&wanted.after[at], &value, sizeof(T));
      }
    }
  }

  BackendType backend_;
  int ranks_;
  std::size_t maxCount_;
  PipelineShape shape_;
  VariableKind kind_;
  bool countsCalls_;
  Buffers scratch_;
  Buffers epochs_;
  unsigned seed_ = 1;
  std::mt19937 random_{7};
};

template <class C>
inline constexpr VariableKind variableKindOf = VariableKind::AllGather;
template <class T, class Op, CollectiveConfig config>
inline constexpr VariableKind variableKindOf<ReduceScatterV<T, Op, config>> = VariableKind::ReduceScatter;
template <class T, CollectiveConfig config>
inline constexpr VariableKind variableKindOf<AllToAllV<T, config>> = VariableKind::AllToAll;

template <class Collective, bool isSerial = false>
class VariableTesterOf final : public VariableTester<typename Collective::Element,
                                                     isSerial ? 1 : warpWidthFor(Collective::configuration.protocol)> {
  static constexpr int width = isSerial ? 1 : warpWidthFor(Collective::configuration.protocol);
  using Base = VariableTester<typename Collective::Element, width>;

 public:
  /// skippedEpochs: the first call has as many before it. Packets only.
  VariableTesterOf(int ranks, std::size_t maxCount, const PipelineShape& shape, std::uint64_t skippedEpochs = 0)
      : Base(ranks, maxCount, shape,
             {variableKindOf<Collective>, Collective::scratchFor(maxCount, ranks, shape).windowBytes(),
              Collective::Scratch::initialByte, Collective::Scratch::firstEpoch, !isSerial},
             skippedEpochs) {}

 private:
  std::optional<WaitRecord> launch(Backend<width>& backend, const Shape& shape,
                                   const VariableParameters& parameters) override {
    return backend.run(shape, VariableBody<Collective, variableKindOf<Collective>, isSerial>{parameters});
  }
};

}  // namespace mscclpp::test
