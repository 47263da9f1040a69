// Runs an all-reduce on a backend and checks it: every byte of every output against a reference reduced in rank order,
// and the number of calls of source and sink.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "mscclpp/collective/all_reduce.hpp"
#include "mscclpp/sync/grid_barrier.hpp"
#include "reference.hpp"
#include "tests/backend/backend.hpp"

namespace mscclpp::test {

/// A call: the number of elements, and the offsets of input and output, in elements from a 128-byte boundary.
struct Message {
  std::size_t count;
  bool inPlace = false;
  int inputShift = 0;
  int outputShift = 0;
};

/// The same for the kernel: byte offsets into the data and counter windows.
struct MessageLayout {
  std::size_t count;
  std::size_t input;
  std::size_t output;
  std::size_t sourceCalls;
  std::size_t sinkCalls;
};

inline constexpr int maxMessages = 16;
inline constexpr std::size_t barrierBytes = 128;

/// The outcome of attempt(timeout), a run in which rank `waiter` must time out on rank `culprit`. On a busy machine
/// another rank may be later than the timeout, and be named by the waiter instead: then once more, with more time.
template <class Attempt>
auto withEnoughTime(const Attempt& attempt, int waiter, int culprit) {
  std::uint64_t timeout = 100'000'000;
  auto outcome = attempt(timeout);
  while (outcome.record && outcome.record->rank == waiter && outcome.record->peer != culprit && timeout < waitTimeout) {
    timeout *= 5;
    outcome = attempt(timeout);
  }
  return outcome;
}

/// A source that counts its calls and can delay one rank.
template <class T>
struct CountingSource {
  ArraySource<T> from;
  std::uint32_t* calls;
  std::size_t count;
  std::uint64_t nanoseconds;

  MSCCLPP_HOST_DEVICE Pack<T> operator()(std::size_t first, int valid) const {
    const auto size = static_cast<std::size_t>(packSize<T>);
    const std::size_t left = count - first;
    const bool right =
        first % size == 0 && first < count && static_cast<std::size_t>(valid) == (left < size ? left : size);
    // A wrong call counts 1000.
    arch::fetchAdd<arch::Order::Relaxed, arch::Scope::Device>(&calls[first / size], right ? 1u : 1000u);
    if (nanoseconds != 0) {
      const auto start = arch::nanoseconds();
      while (arch::nanoseconds() - start < nanoseconds) arch::backoff(200);
    }
    return from(first, valid);
  }
};

template <class T>
struct CountingSink {
  ArraySink<T> to;
  std::uint32_t* calls;
  std::size_t count;

  MSCCLPP_HOST_DEVICE void operator()(std::size_t first, const Pack<T>& result, int valid) const {
    const auto size = static_cast<std::size_t>(packSize<T>);
    const std::size_t left = count - first;
    const bool right =
        first % size == 0 && first < count && static_cast<std::size_t>(valid) == (left < size ? left : size);
    arch::fetchAdd<arch::Order::Relaxed, arch::Scope::Device>(&calls[first / size], right ? 1u : 1000u);
    to(first, result, valid);
  }
};

/// Injected faults.
struct Faults {
  int slowRank = -1;  ///< rank whose source takes `delay` nanoseconds per call
  std::uint64_t delay = 0;
  int absentRank = -1;        ///< rank that does not make the call
  int dropFrom = -1;          ///< data from this rank
  int dropTo = -1;            ///< to this rank goes to the discard window
  bool allRanksSlow = false;  ///< sources delay in a pattern that differs between ranks and calls
};

/// The parameters of the kernels of all ranks.
struct AllReduceParameters {
  Window<> scratch, epochs, data, counters, barriers, discard;
  std::size_t maxCount;
  PipelineShape shape;
  BoundedWait wait;
  int ranks;
  int messages;
  ReduceOp op;  ///< of a collective whose operator is chosen at run time
  MessageLayout message[maxMessages];
  Faults faults;
};

/// Runs the messages in sequence in one launch.
template <class Collective>
struct AllReduceBody {
  using T = typename Collective::Element;
  using Args = typename Collective::Args;

  AllReduceParameters p;

  /// The number of threads and calls whose waits failed; next to the barrier.
  MSCCLPP_HOST_DEVICE std::uint32_t* failures(int rank) const {
    return reinterpret_cast<std::uint32_t*>(p.barriers.at(rank, barrierBytes));
  }

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    const Faults& faults = p.faults;
    if (rank == faults.absentRank) return;
    Args args{};
    args.team = decltype(args.team)(rank, p.ranks);
    for (int r = 0; r < p.ranks; ++r) args.window.base[r] = p.scratch.at(r);
    if (rank == faults.dropFrom) args.window.base[faults.dropTo] = p.discard.at(faults.dropTo);
    args.epochs = {reinterpret_cast<std::uint64_t*>(p.epochs.at(rank))};
    args.scratch = Collective::scratchFor(p.maxCount, p.ranks, p.shape);
    if constexpr (requires { args.scratch.slots; }) args.scratch.slots = p.shape.slots;  // too few, if a test wants it
    args.wait = p.wait;
    if constexpr (requires { args.op.op; }) args.op = {p.op};
    auto barrierWait = p.wait;
    auto* barrier = reinterpret_cast<GridBarrier*>(p.barriers.at(rank));
    for (int m = 0; m < p.messages; ++m) {
      const MessageLayout& message = p.message[m];
      args.count = message.count;
      std::uint64_t delay = rank == faults.slowRank ? faults.delay : 0;
      if (faults.allRanksSlow && (m + rank) % p.ranks == 0) delay = faults.delay;
      const CountingSource<T> source{ArraySource<T>(reinterpret_cast<const T*>(p.data.at(rank, message.input))),
                                     reinterpret_cast<std::uint32_t*>(p.counters.at(rank, message.sourceCalls)),
                                     message.count, delay};
      const CountingSink<T> sink{ArraySink<T>(reinterpret_cast<T*>(p.data.at(rank, message.output))),
                                 reinterpret_cast<std::uint32_t*>(p.counters.at(rank, message.sinkCalls)),
                                 message.count};
      const bool succeeded = Collective::run(grid, args, source, sink);
      if (!succeeded) arch::fetchAdd<arch::Order::Relaxed, arch::Scope::Device>(failures(rank), 1u);
      barrier->sync(grid, barrierWait);
    }
  }
};

/// Runs messages with scratch and epochs that persist between launches, and checks them.
template <class T, class Op, class BackendType>
class CheckedAllReduce {
 public:
  Faults faults;
  std::uint64_t timeout = waitTimeout;

  /// Runs the messages in one launch and checks everything.
  void check(const Shape& shape, const std::vector<Message>& messages) {
    const auto [record, difference] = run(shape, messages);
    if (record) {
      FAIL_CHECK(describe(*record));
      return;
    }
    CHECK(difference == "");
  }

  struct Outcome {
    std::optional<WaitRecord> record;
    std::string difference;  ///< the first error in the outputs, or empty
  };

  Outcome run(Shape shape, const std::vector<Message>& messages) {
    shape.ranks = ranks_;
    const auto ranks = static_cast<std::size_t>(ranks_);
    AllReduceParameters body{};
    body.messages = static_cast<int>(messages.size());
    body.op = valueOf<Op>;
    REQUIRE(messages.size() <= maxMessages);
    std::size_t bytes = 0;
    std::size_t counterBytes = 0;
    for (std::size_t m = 0; m < messages.size(); ++m) {
      const Message& message = messages[m];
      MessageLayout& layout = body.message[m];
      layout.count = message.count;
      const auto reserve = [&](int shift) {
        const std::size_t at = bytes + static_cast<std::size_t>(shift) * sizeof(T);
        bytes = roundUp(at + message.count * sizeof(T) + 16, 128);
        return at;
      };
      layout.input = reserve(message.inputShift);
      layout.output = message.inPlace ? layout.input : reserve(message.outputShift);
      const std::size_t packs = ceilDivide(message.count, static_cast<std::size_t>(packSize<T>));
      layout.sourceCalls = counterBytes;
      layout.sinkCalls = counterBytes + packs * sizeof(std::uint32_t);
      counterBytes += 2 * packs * sizeof(std::uint32_t);
    }

    auto data = backend_.allocate(ranks_, bytes, poisonByte);
    auto counters = backend_.allocate(ranks_, counterBytes, 0);
    auto barriers = backend_.allocate(ranks_, 2 * barrierBytes, 0);
    std::vector<std::vector<unsigned char>> expected(ranks, std::vector<unsigned char>(bytes, poisonByte));
    for (std::size_t m = 0; m < messages.size(); ++m) {
      const auto inputs = inputsOf<T>(messages[m].count, ranks_, ++seed_);
      const auto results = referenceOf<T, Op>(inputs);
      const std::size_t size = messages[m].count * sizeof(T);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        data.write(static_cast<int>(rank), inputs[rank], body.message[m].input);
        if (size == 0) continue;
        std::memcpy(&expected[rank][body.message[m].input], inputs[rank].data(), size);
        std::memcpy(&expected[rank][body.message[m].output], results.data(), size);
      }
    }
    body.scratch = scratch_.window();
    body.epochs = epochs_.window();
    body.data = data.window();
    body.counters = counters.window();
    body.barriers = barriers.window();
    body.discard = discard_.window();
    body.maxCount = maxCount_;
    body.shape = shape_;
    body.wait = backend_.wait(timeout);
    body.ranks = ranks_;
    body.faults = faults;
    const auto record = launch(backend_, shape, body);

    std::string difference;
    const auto differs = [&](const std::string& what) {
      if (difference.empty()) difference = what;
    };
    std::vector<unsigned char> first;
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto actual = data.template read<unsigned char>(rank);
      auto& wanted = expected[static_cast<std::size_t>(rank)];
      for (const MessageLayout& layout : body.message) {
        acceptAnyNan(wanted, rank == 0 ? actual : first, layout);
      }
      const auto at = firstDifference(wanted, actual);
      if (at >= 0)
        differs("rank " + std::to_string(rank) + ": " + describeLocation(body, static_cast<std::size_t>(at)));
      if (rank == 0) first = actual;
      const bool failed = barriers.template read<std::uint32_t>(rank)[barrierBytes / sizeof(std::uint32_t)] != 0;
      if (failed && !record) differs("rank " + std::to_string(rank) + ": run() returned false, but no wait failed");
      for (const auto count : counters.template read<std::uint32_t>(rank)) {
        if (count != 1) differs("rank " + std::to_string(rank) + ": a pack had " + std::to_string(count) + " calls");
      }
    }
    return {record, difference};
  }

  /// The epoch words of a rank.
  std::vector<std::uint64_t> epochs(int rank) const {
    auto words = epochs_.template read<std::uint64_t>(rank);
    words.resize(maxBlocks);
    return words;
  }
  /// Sets the epochs as after this many calls.
  void setEpoch(std::uint64_t epoch) {
    for (int rank = 0; rank < ranks_; ++rank) epochs_.write(rank, std::vector<std::uint64_t>(epochWords, epoch));
  }
  /// The scratch window of a rank.
  std::vector<std::uint32_t> scratch(int rank) const { return scratch_.template read<std::uint32_t>(rank); }

 protected:
  using Buffers = decltype(std::declval<BackendType>().allocate(0, 0, 0));

  /// countersOffset, countersBytes: of the words in the scratch that start at the epoch.
  CheckedAllReduce(int ranks, std::size_t maxCount, const PipelineShape& shape, std::uint64_t firstEpoch,
                   std::size_t scratchBytes, int initialByte, std::size_t countersOffset, std::size_t countersBytes)
      : ranks_(ranks),
        maxCount_(maxCount),
        shape_(shape),
        scratch_(backend_.allocate(ranks, scratchBytes, initialByte)),
        discard_(backend_.allocate(ranks, scratchBytes, initialByte)),
        epochs_(backend_.allocate(ranks, epochWords * sizeof(std::uint64_t), 0)) {
    for (int rank = 0; rank < ranks; ++rank) {
      epochs_.write(rank, std::vector<std::uint64_t>(epochWords, firstEpoch));
      const std::size_t words = countersBytes / sizeof(std::uint64_t);
      scratch_.write(rank, std::vector<std::uint64_t>(words, firstEpoch), countersOffset);
    }
  }
  ~CheckedAllReduce() = default;

  virtual std::optional<WaitRecord> launch(BackendType& backend, const Shape& shape,
                                           const AllReduceParameters& parameters) = 0;

 private:
  /// Where the reference has a NaN, any NaN is accepted, as long as all ranks have the same bits as rank 0.
  static void acceptAnyNan(std::vector<unsigned char>& wanted, const std::vector<unsigned char>& of,
                           const MessageLayout& layout) {
    for (std::size_t i = 0; i < layout.count; ++i) {
      T reference;
      T actual;
      std::memcpy(&reference, &wanted[layout.output + i * sizeof(T)], sizeof(T));
      std::memcpy(&actual, &of[layout.output + i * sizeof(T)], sizeof(T));
      if (isNan(reference) && isNan(actual)) {
        std::memcpy(&wanted[layout.output + i * sizeof(T)], &actual, sizeof(T));
      }
    }
  }

  static std::string describeLocation(const AllReduceParameters& body, std::size_t byte) {
    for (int m = 0; m < body.messages; ++m) {
      const MessageLayout& layout = body.message[m];
      for (const auto& [name, begin] : {std::pair("input", layout.input), std::pair("output", layout.output)}) {
        if (byte < begin || byte >= begin + layout.count * sizeof(T)) continue;
        return "message " + std::to_string(m) + " of " + std::to_string(layout.count) + " elements: " + name +
               " differs at element " + std::to_string((byte - begin) / sizeof(T));
      }
    }
    return "byte " + std::to_string(byte) + " outside the messages was overwritten";
  }

  BackendType backend_;
  int ranks_;
  std::size_t maxCount_;
  PipelineShape shape_;
  Buffers scratch_;
  Buffers discard_;
  Buffers epochs_;
  unsigned seed_ = 0;
};

/// Op: what the collective computes; its own operator is Op or RuntimeOp.
template <class Collective, class Op, class BackendType>
class AllReduceTester final : public CheckedAllReduce<typename Collective::Element, Op, BackendType> {
  using Base = CheckedAllReduce<typename Collective::Element, Op, BackendType>;
  using Scratch = typename Collective::Scratch;

 public:
  /// For packet protocols. capacityPacks: packs of the longest message.
  AllReduceTester(int ranks, std::size_t capacityPacks, std::uint64_t firstEpoch = Scratch::firstEpoch)
      : AllReduceTester(ranks, capacityPacks * static_cast<std::size_t>(packSize<typename Collective::Element>),
                        PipelineShape{}, firstEpoch) {}
  /// For pipelines.
  AllReduceTester(int ranks, const PipelineShape& shape, std::uint64_t firstEpoch = Scratch::firstEpoch)
      : AllReduceTester(ranks, 0, shape, firstEpoch) {}

 private:
  AllReduceTester(int ranks, std::size_t maxCount, const PipelineShape& shape, std::uint64_t firstEpoch)
      : AllReduceTester(ranks, maxCount, shape, firstEpoch, Collective::scratchFor(maxCount, ranks, shape)) {}
  AllReduceTester(int ranks, std::size_t maxCount, const PipelineShape& shape, std::uint64_t firstEpoch,
                  const Scratch& scratch)
      : Base(ranks, maxCount, shape, firstEpoch, scratch.windowBytes(), Scratch::initialByte, counters(scratch).begin,
             counters(scratch).size()) {}

  static Range counters(const Scratch& scratch) {
    if constexpr (requires { scratch.countersOffset(); }) {
      return {scratch.countersOffset(), scratch.countersOffset() + scratch.countersBytes()};
    } else {
      return {0, 0};
    }
  }

  std::optional<WaitRecord> launch(BackendType& backend, const Shape& shape,
                                   const AllReduceParameters& parameters) override {
    return backend.run(shape, AllReduceBody<Collective>{parameters});
  }
};

}  // namespace mscclpp::test
