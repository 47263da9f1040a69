// An all-reduce on a backend, checked in full: every byte of every output against a reference made in rank order, and
// every call of source and sink counted.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "collective/reference.hpp"
#include "mscclpp/collective/all_reduce.hpp"
#include "mscclpp/sync/grid_barrier.hpp"

namespace mscclpp::test {

/// One call: how many elements, and where its input and output begin, in elements after a 128-byte boundary.
struct Message {
  std::size_t count;
  bool inPlace = false;
  int inputShift = 0;
  int outputShift = 0;
};

/// The same as the kernel sees it: byte offsets into the data and counter windows.
struct MessageLayout {
  std::size_t count;
  std::size_t input;
  std::size_t output;
  std::size_t sourceCalls;
  std::size_t sinkCalls;
};

inline constexpr int maxMessages = 16;

/// A source that counts its calls, and that may dawdle on one rank.
template <class T>
struct CountingSource {
  LoadFrom<T> from;
  std::uint32_t* calls;
  std::size_t count;
  std::uint64_t nanoseconds;

  MSCCLPP_HOST_DEVICE Pack<T> operator()(std::size_t first, int valid) const {
    const auto size = static_cast<std::size_t>(packSize<T>);
    const std::size_t left = count - first;
    const bool right =
        first % size == 0 && first < count && static_cast<std::size_t>(valid) == (left < size ? left : size);
    // A call that is wrong counts as many.
    arch::fetchAdd<arch::Order::Relaxed, arch::Scope::Device>(&calls[first / size], right ? 1u : 1000u);
    if (nanoseconds != 0) {
      const auto start = arch::nanoseconds();
      while (arch::nanoseconds() - start < nanoseconds) arch::pauseAfterFailure(200);
    }
    return from(first, valid);
  }
};

template <class T>
struct CountingSink {
  StoreTo<T> to;
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

/// What goes wrong on purpose.
struct Faults {
  int slowRank = -1;  ///< whose source takes `delay` nanoseconds a call
  std::uint64_t delay = 0;
  int silentRank = -1;        ///< which does not call at all
  int cutFrom = -1;           ///< whatever this rank sends
  int cutTo = -1;             ///< to this one goes to the trash window
  bool everyoneSlow = false;  ///< sources dawdle in a pattern that changes from rank to rank and call to call
};

/// What the kernels of all ranks get.
struct AllReduceParameters {
  Window<> scratch, epochs, data, counters, barriers, trash;
  std::size_t capacityPacks;
  PipelineScratch pipeline;
  BoundedWait wait;
  int ranks;
  int messages;
  MessageLayout message[maxMessages];
  Faults faults;
};

/// Runs the messages one after the other in one launch.
template <class Collective>
struct AllReduceBody {
  using T = typename Collective::Element;
  using Args = typename Collective::Args;

  AllReduceParameters p;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    const Faults& faults = p.faults;
    if (rank == faults.silentRank) return;
    Args args{};
    args.team = decltype(args.team)(rank, p.ranks);
    for (int r = 0; r < p.ranks; ++r) args.window.base[r] = p.scratch.at(r);
    if (rank == faults.cutFrom) args.window.base[faults.cutTo] = p.trash.at(faults.cutTo);
    args.epochs = {reinterpret_cast<std::uint64_t*>(p.epochs.at(rank))};
    args.capacityPacks = p.capacityPacks;
    args.pipeline = p.pipeline;
    args.wait = p.wait;
    auto barrierWait = p.wait;
    auto* barrier = reinterpret_cast<GridBarrier*>(p.barriers.at(rank));
    for (int m = 0; m < p.messages; ++m) {
      const MessageLayout& message = p.message[m];
      args.count = message.count;
      std::uint64_t delay = rank == faults.slowRank ? faults.delay : 0;
      if (faults.everyoneSlow && (m + rank) % p.ranks == 0) delay = faults.delay;
      const CountingSource<T> source{LoadFrom<T>(reinterpret_cast<const T*>(p.data.at(rank, message.input))),
                                     reinterpret_cast<std::uint32_t*>(p.counters.at(rank, message.sourceCalls)),
                                     message.count, delay};
      const CountingSink<T> sink{StoreTo<T>(reinterpret_cast<T*>(p.data.at(rank, message.output))),
                                 reinterpret_cast<std::uint32_t*>(p.counters.at(rank, message.sinkCalls)),
                                 message.count};
      Collective::run(grid, args, source, sink);
      barrier->sync(grid, barrierWait);
    }
  }
};

/// Runs messages through scratch and epochs that are kept from launch to launch, and checks them.
template <class T, class Op, class BackendType>
class CheckedRun {
 public:
  Faults faults;
  std::uint64_t timeout = waitTimeout;

  /// Runs the messages in one launch and checks everything. The name goes into the report of a failure.
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
    std::string difference;  ///< the first thing that is wrong with the outputs, or nothing
  };

  Outcome run(Shape shape, const std::vector<Message>& messages) {
    shape.ranks = ranks_;
    const auto ranks = static_cast<std::size_t>(ranks_);
    AllReduceParameters body{};
    body.messages = static_cast<int>(messages.size());
    REQUIRE(messages.size() <= maxMessages);
    std::size_t bytes = 0;
    std::size_t counterBytes = 0;
    for (std::size_t m = 0; m < messages.size(); ++m) {
      const Message& message = messages[m];
      MessageLayout& layout = body.message[m];
      layout.count = message.count;
      const auto place = [&](int shift) {
        const std::size_t at = bytes + static_cast<std::size_t>(shift) * sizeof(T);
        bytes = roundUp(at + message.count * sizeof(T) + 16, 128);
        return at;
      };
      layout.input = place(message.inputShift);
      layout.output = message.inPlace ? layout.input : place(message.outputShift);
      const std::size_t packs = ceilDivide(message.count, static_cast<std::size_t>(packSize<T>));
      layout.sourceCalls = counterBytes;
      layout.sinkCalls = counterBytes + packs * sizeof(std::uint32_t);
      counterBytes += 2 * packs * sizeof(std::uint32_t);
    }

    auto data = backend_.allocate(ranks_, bytes, poisonByte);
    auto counters = backend_.allocate(ranks_, counterBytes, 0);
    auto barriers = backend_.allocate(ranks_, 128, 0);
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
    body.trash = trash_.window();
    body.capacityPacks = capacityPacks_;
    body.pipeline = pipeline_;
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
        adoptNans(wanted, rank == 0 ? actual : first, layout);
      }
      const auto at = firstDifference(wanted, actual);
      if (at >= 0) differs("rank " + std::to_string(rank) + ": " + placeOf(body, static_cast<std::size_t>(at)));
      if (rank == 0) first = actual;
      for (const auto count : counters.template read<std::uint32_t>(rank)) {
        if (count != 1) differs("rank " + std::to_string(rank) + ": a pack had " + std::to_string(count) + " calls");
      }
    }
    return {record, difference};
  }

  /// The epoch words of a rank.
  std::vector<std::uint64_t> epochs(int rank) const { return epochs_.template read<std::uint64_t>(rank); }
  /// As if this many calls had gone by.
  void setEpoch(std::uint64_t epoch) {
    for (int rank = 0; rank < ranks_; ++rank) epochs_.write(rank, std::vector<std::uint64_t>(maxBlocks, epoch));
  }
  /// The scratch window of a rank.
  std::vector<std::uint32_t> scratch(int rank) const { return scratch_.template read<std::uint32_t>(rank); }

 protected:
  using Buffers = decltype(std::declval<BackendType>().allocate(0, 0, 0));

  CheckedRun(int ranks, std::size_t capacityPacks, const PipelineScratch& pipeline, std::uint64_t firstEpoch,
             std::size_t scratchBytes, int initialByte)
      : ranks_(ranks),
        capacityPacks_(capacityPacks),
        pipeline_(pipeline),
        scratch_(backend_.allocate(ranks, scratchBytes, initialByte)),
        trash_(backend_.allocate(ranks, scratchBytes, initialByte)),
        epochs_(backend_.allocate(ranks, maxBlocks * sizeof(std::uint64_t), 0)) {
    for (int rank = 0; rank < ranks; ++rank) {
      epochs_.write(rank, std::vector<std::uint64_t>(maxBlocks, firstEpoch));
      if (pipeline.ranks > 0) {  // the counters start where the epochs start
        const std::size_t words = (pipeline.windowBytes() - pipeline.countersOffset()) / sizeof(std::uint64_t);
        scratch_.write(rank, std::vector<std::uint64_t>(words, firstEpoch), pipeline.countersOffset());
      }
    }
  }
  ~CheckedRun() = default;

  virtual std::optional<WaitRecord> launch(BackendType& backend, const Shape& shape,
                                           const AllReduceParameters& parameters) = 0;

 private:
  /// Which of several NaNs an operation gives is the machine's choice: where the reference has a NaN, any is right, as
  /// long as all ranks have rank 0's.
  static void adoptNans(std::vector<unsigned char>& wanted, const std::vector<unsigned char>& of,
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

  static std::string placeOf(const AllReduceParameters& body, std::size_t byte) {
    for (int m = 0; m < body.messages; ++m) {
      const MessageLayout& layout = body.message[m];
      for (const auto& [name, begin] : {std::pair("input", layout.input), std::pair("output", layout.output)}) {
        if (byte < begin || byte >= begin + layout.count * sizeof(T)) continue;
        return "message " + std::to_string(m) + " of " + std::to_string(layout.count) + " elements: " + name +
               " differs at element " + std::to_string((byte - begin) / sizeof(T));
      }
    }
    return "byte " + std::to_string(byte) + " beside the messages was overwritten";
  }

  BackendType backend_;
  int ranks_;
  std::size_t capacityPacks_;
  PipelineScratch pipeline_;
  Buffers scratch_;
  Buffers trash_;
  Buffers epochs_;
  unsigned seed_ = 0;
};

template <class Collective, class Op, class BackendType>
class AllReduceRun final : public CheckedRun<typename Collective::Element, Op, BackendType> {
  using Base = CheckedRun<typename Collective::Element, Op, BackendType>;
  static constexpr AllReduceConfig config = Collective::configuration;

 public:
  /// capacityPacks: of the longest message, for packet protocols.
  AllReduceRun(int ranks, std::size_t capacityPacks, std::uint64_t firstEpoch = 1)
      : Base(ranks, capacityPacks, PipelineScratch{}, firstEpoch,
             PacketScratch<Packets, config.pattern>{capacityPacks, ranks}.windowBytes(), Packets::initialByte) {}
  /// For pipelines.
  AllReduceRun(int ranks, const PipelineScratch& pipeline, std::uint64_t firstEpoch = 0)
      : Base(ranks, 0, pipeline, firstEpoch, pipeline.windowBytes(), 0) {}

 private:
  static constexpr bool pipelined = config.schedule == Schedule::Pipelined;
  using Packets = typename PackProtocolOf<pipelined ? Protocol::LL16 : config.protocol>::Type;

  std::optional<WaitRecord> launch(BackendType& backend, const Shape& shape,
                                   const AllReduceParameters& parameters) override {
    return backend.run(shape, AllReduceBody<Collective>{parameters});
  }
};

}  // namespace mscclpp::test
