// Runs dispatches and combines on a backend and checks all their outputs: rows of experts bit by bit, sums against a
// reference in the same order and against one in double precision.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "mscclpp/moe/combine.hpp"
#include "mscclpp/moe/dispatch.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

inline constexpr int maxMoeCalls = 12;
inline constexpr int maxMoeRanks = 8;

/// What the rows of tokens are.
enum class RowKind { Plain, Scaled, Quantised };

/// Offsets in the buffer of a rank, in bytes. Arrays of calls follow each other.
struct MoeOffsets {
  std::size_t tokensPerExpert, tokensPerRank, expertIndex, segmentCounts, barrier, gate, blockMemory;  // workspace
  std::size_t rankIndex, received, positions, weightsReceived, stamp, counts, offsets, origins;        // of each call
  std::size_t experts, weights, rows, scales, results;  // inputs of each call
  std::size_t expertRows, expertScales, combined;       // outputs of each call
  std::size_t firstOfCalls, callBytes, bytes;
};

inline std::size_t place(std::size_t& end, std::size_t bytes) {
  const std::size_t at = end;
  end += roundUp(bytes, 128);
  return at;
}

/// What is wrong with the counts that a rank sends: mutants. The last three are of the low-latency form, and need the
/// body of mutants_test.cpp.
enum class WrongCounts {
  None,
  Swapped,  ///< rank 1 sends others than of its rows; of the bandwidth form
  Token,    ///< the first block counts a token too few for every rank
  Row,      ///< the first block counts a row too few for every expert
  Early     ///< threads count before the others of their block have set their bits
};

/// The ports of the ranks (moe::RowPorts) for one exchange.
struct MoePorts {
  const void* channels[maxMoeRanks];
  std::byte* staging[maxMoeRanks];
};

struct MoeParameters {
  moe::Dimensions dimensions;
  std::uint32_t tokens[maxMoeCalls][maxMoeRanks];
  int calls;
  std::uint32_t rowPacks;  ///< of a row as it travels
  std::uint32_t resultPacks;
  std::uint32_t alignment;
  std::uint32_t stride;
  std::uint32_t capacity;
  bool hasWeights;
  bool isSplit;       ///< calls in two phases
  bool dispatchOnly;  ///< without combine
  WrongCounts wrongCounts;
  int slowRank;  ///< -1: none; sleeps in the middle of its receptions
  std::uint64_t slowness;
  int absentRank;  ///< -1: none; makes no call
  int smallRank;   ///< -1: none; says that its output holds one row
  int sentCall;    ///< -1: none; its dispatch, with the handle of the call before, is sent and not received
  int maxBlocks;
  int ranksPerHost;   ///< over ports: so many ranks in a row have mapped each other's windows
  int sendingBlocks;  ///< of rank 0; the next rank has one more, up to 3, and then 0
  Window<> dispatchScratch, combineScratch, epochs, memory;
  MoePorts dispatchPorts, combinePorts;
  MoeOffsets at;
  BoundedWait wait;
};

inline MoeOffsets offsetsOf(const MoeParameters& p) {
  const auto& d = p.dimensions;
  const auto perRank = static_cast<std::size_t>(d.expertsPerRank());
  const auto ranks = static_cast<std::size_t>(d.ranks);
  const std::size_t choices = std::size_t{d.maxTokens} * static_cast<std::size_t>(d.topk);
  MoeOffsets at{};
  std::size_t end = 0;
  at.tokensPerExpert = place(end, static_cast<std::size_t>(d.experts) * 4);
  at.tokensPerRank = place(end, ranks * 4);
  at.expertIndex = place(end, choices * 4);
  at.segmentCounts = place(end, moe::maxSegments * (static_cast<std::size_t>(d.experts) + ranks) * 4);
  at.barrier = place(end, sizeof(GridBarrier));
  at.gate = place(end, sizeof(GridGate));
  const std::size_t words = std::max(moe::Dispatch<moe::PacketTransport<Sentinel>>::blockWords(d),
                                     moe::Dispatch<moe::StoreTransport>::blockWords(d));
  at.blockMemory = place(end, words * 4 * static_cast<std::size_t>(p.maxBlocks));
  at.firstOfCalls = end;
  at.rankIndex = place(end, std::size_t{d.maxTokens} * ranks * 4);
  at.received = place(end, ranks * 4);
  at.positions = place(end, ranks * choices * 4);
  at.weightsReceived = place(end, ranks * choices * 4);
  at.stamp = place(end, 8);
  at.counts = place(end, perRank * 4);
  at.offsets = place(end, (perRank + 1) * 4);
  at.origins = place(end, std::size_t{p.capacity} * sizeof(moe::RowOrigin));
  at.experts = place(end, choices * 8);
  at.weights = place(end, choices * 4);
  at.rows = place(end, std::size_t{d.maxTokens} * p.rowPacks * 32);
  at.scales = place(end, std::size_t{d.maxTokens} * p.rowPacks * 4);
  at.results = place(end, std::size_t{p.capacity} * p.resultPacks * 16);
  at.expertRows = place(end, std::size_t{p.capacity} * p.rowPacks * 16);
  at.expertScales = place(end, std::size_t{p.capacity} * p.rowPacks * 4);
  at.combined = place(end, std::size_t{d.maxTokens} * p.resultPacks * 16);
  at.callBytes = end - at.firstOfCalls;
  at.bytes = at.firstOfCalls + at.callBytes * static_cast<std::size_t>(p.calls);
  return at;
}

MSCCLPP_INLINE void moeDelay(std::uint64_t nanoseconds) {
  const auto start = arch::nanoseconds();
  while (nanoseconds > 0 && arch::nanoseconds() - start < nanoseconds) arch::backoff(200);
}

/// A sink that is slow at times.
struct SlowSink {
  moe::ExpertRowArray to;
  std::uint64_t slowness;

  MSCCLPP_INLINE void pack(std::uint32_t row, std::uint32_t index, const Word128& word) const {
    if (index == 0) moeDelay(slowness);
    to.pack(row, index, word);
  }
  MSCCLPP_INLINE void scalePack(std::uint32_t row, std::uint32_t group, std::uint32_t count,
                                const Word128& word) const {
    to.scalePack(row, group, count, word);
  }
};

template <class Transport, RowKind kind>
struct MoeBody {
  MoeParameters p;

  using Dispatch = moe::Dispatch<Transport, 0, std::int64_t>;
  using Combine = moe::Combine<bf16, Transport>;

  template <class T>
  MSCCLPP_INLINE T* local(int rank, std::size_t offset) const {
    return reinterpret_cast<T*>(p.memory.at(rank, offset));
  }

  /// Gives the arguments their window, and what else leads to the other ranks.
  template <class Args>
  MSCCLPP_INLINE void connect(Args& args, int rank, const Window<>& scratch,
                              [[maybe_unused]] const MoePorts& ports) const {
    args.window = scratch;
    if constexpr (Transport::usesPorts) {
      args.ports = {static_cast<const typename Transport::Channel*>(ports.channels[rank]), ports.staging[rank]};
      for (int peer = 0; peer < p.dimensions.ranks; ++peer) {
        if (peer / p.ranksPerHost != rank / p.ranksPerHost) args.window.base[peer] = nullptr;
      }
    }
  }

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    if (rank == p.absentRank) return;
    SpinWait wait;  // the library's waits end, so that all blocks get there
    auto& barrier = *local<GridBarrier>(rank, p.at.barrier);
    const std::uint64_t slowness = rank == p.slowRank ? p.slowness : 0;
    for (int call = 0; call < p.calls; ++call) {
      const std::size_t shift = static_cast<std::size_t>(call) * p.at.callBytes;
      auto* const epochs = reinterpret_cast<std::uint64_t*>(p.epochs.at(rank));
      const std::size_t at = call == p.sentCall ? shift - p.at.callBytes : shift;
      const moe::Handle handle{
          local<std::int32_t>(rank, p.at.rankIndex + at), local<std::uint32_t>(rank, p.at.received + at),
          local<std::int32_t>(rank, p.at.positions + at), local<float>(rank, p.at.weightsReceived + at),
          local<std::uint64_t>(rank, p.at.stamp + at),    7};
      typename Dispatch::Args dispatch{};
      dispatch.team = Team<>(rank, p.dimensions.ranks);
      connect(dispatch, rank, p.dispatchScratch, p.dispatchPorts);
      dispatch.epochs = {epochs};
      dispatch.scratch = Dispatch::scratchFor(p.dimensions, p.rowPacks, kind != RowKind::Plain);
      dispatch.count = p.tokens[call][rank];
      dispatch.sendsEarly = (rank + call) % 2 == 0;  // ranks may differ in these
      dispatch.streams = rank % 2 == 0;
      dispatch.wait = p.wait;
      dispatch.dimensions = p.dimensions;
      dispatch.routing = {local<std::int64_t>(rank, p.at.experts + shift),
                          p.hasWeights ? local<float>(rank, p.at.weights + shift) : nullptr, p.tokens[call][rank]};
      dispatch.workspace = {
          {local<std::uint32_t>(rank, p.at.tokensPerExpert), local<std::uint32_t>(rank, p.at.tokensPerRank),
           handle.rankIndex, local<std::int32_t>(rank, p.at.expertIndex),
           local<std::uint32_t>(rank, p.at.segmentCounts)},
          &barrier,
          local<GridGate>(rank, p.at.gate),
          local<std::uint32_t>(rank, p.at.blockMemory),
          p.maxBlocks};
      if (p.wrongCounts == WrongCounts::Swapped && rank == 1) {
        dispatch.workspace.layout.tokensPerRank = local<std::uint32_t>(rank, p.at.tokensPerExpert);
      }
      dispatch.placement = {rank == p.smallRank ? 1 : p.capacity,
                            p.alignment,
                            p.stride,
                            local<std::uint32_t>(rank, p.at.counts + shift),
                            local<std::uint32_t>(rank, p.at.offsets + shift),
                            local<moe::RowOrigin>(rank, p.at.origins + shift)};
      dispatch.handle = handle;
      dispatch.sendingBlocks = p.sendingBlocks > 0 ? (p.sendingBlocks + rank) % 4 : 0;
      const std::uint32_t groups = (p.rowPacks + moe::groupPacks - 1) / moe::groupPacks;
      const SlowSink sink{{local<std::byte>(rank, p.at.expertRows + shift), p.rowPacks,
                           local<float>(rank, p.at.expertScales + shift), groups},
                          slowness};

      typename Combine::Args combine{};
      combine.team = dispatch.team;
      connect(combine, rank, p.combineScratch, p.combinePorts);
      combine.epochs = {epochs + epochWords};
      combine.scratch = Combine::scratchFor(p.dimensions, p.resultPacks);
      combine.count = dispatch.count;
      combine.wait = p.wait;
      combine.dimensions = p.dimensions;
      combine.handle = handle;
      combine.dispatches = dispatch.epochs;
      combine.sendingBlocks = dispatch.sendingBlocks;
      const moe::ExpertResults<bf16> results{local<bf16>(rank, p.at.results + shift), p.resultPacks};
      const moe::TokenRows<bf16> combined{local<bf16>(rank, p.at.combined + shift), p.resultPacks};

      const moe::RowArray plain{local<std::byte>(rank, p.at.rows + shift), p.rowPacks};
      const auto runDispatch = [&](moe::Phase phase) {
        dispatch.phase = phase;
        if constexpr (kind == RowKind::Plain) {
          Dispatch::run(grid, dispatch, plain, sink);
        } else if constexpr (kind == RowKind::Scaled) {
          const auto* const scales = local<const float>(rank, p.at.scales + shift);
          Dispatch::run(grid, dispatch, moe::ScaledRowArray{plain, scales}, sink);
        } else {
          const auto* const rows = local<const bf16>(rank, p.at.rows + shift);
          Dispatch::run(grid, dispatch, moe::QuantisedRows<bf16>{rows, p.rowPacks}, sink);
        }
        barrier.sync(grid, wait);
      };
      const auto runCombine = [&](moe::Phase phase) {
        combine.phase = phase;
        Combine::run(grid, combine, results, combined);
        barrier.sync(grid, wait);
      };
      // One call of each, so that the code is not instantiated more often.
      for (int part = 0; part < 4; ++part) {
        const bool isSecond = part % 2 == 1;
        if (isSecond && (!p.isSplit || (part == 1 && call == p.sentCall))) continue;
        const auto phase = !p.isSplit ? moe::Phase::Both : isSecond ? moe::Phase::Receive : moe::Phase::Send;
        if (part < 2) {
          runDispatch(phase);
        } else if (!p.dispatchOnly) {
          runCombine(phase);
        }
      }
    }
  }
};

struct MoeOutcome {
  std::optional<WaitRecord> record;
  std::string error;  ///< empty: all outputs are right
};

/// The inputs of a call on a rank.
struct MoeInput {
  std::vector<std::int64_t> experts;
  std::vector<float> weights;
  std::vector<std::byte> rows;
  std::vector<float> scales;
  std::vector<bf16> results;
};

/// A value of a reference: in the order of the library, and in double precision with the bound of the error.
struct MoeSum {
  float ordered;
  double exact;
  double bound;
};

template <class T>
std::vector<T> slice(const std::vector<std::byte>& memory, std::size_t offset, std::size_t count) {
  std::vector<T> result(count);
  if (count > 0) std::memcpy(static_cast<void*>(result.data()), memory.data() + offset, count * sizeof(T));
  return result;
}

/// Windows that all ranks have mapped.
class MappedWindows {
 public:
  MappedWindows(const Backend<>& backend, const MoeParameters& p, std::size_t dispatchBytes, std::size_t combineBytes,
                int initialByte)
      : dispatch_(backend.allocate(p.dimensions.ranks, dispatchBytes, initialByte)),
        combine_(backend.allocate(p.dimensions.ranks, combineBytes, initialByte)) {}
  void giveTo(MoeParameters& p) const {
    p.dispatchScratch = dispatch_.window();
    p.combineScratch = combine_.window();
  }

 private:
  using Buffers = decltype(Backend<>().allocate(1, 1, 0));
  Buffers dispatch_, combine_;
};

/// BodyType: a MoeBody. Links: what connects the ranks, constructed as MappedWindows.
template <class Transport, RowKind kind, class BodyType = MoeBody<Transport, kind>, class Links = MappedWindows>
class MoeTester {
 public:
  using Body = BodyType;

  MoeTester(const MoeParameters& parameters, unsigned seed) : p_(parameters), random_(seed) {
    const auto& d = p_.dimensions;
    if (p_.capacity == 0) {
      p_.capacity = p_.stride > 0 ? p_.stride * static_cast<std::uint32_t>(d.expertsPerRank())
                                  : static_cast<std::uint32_t>(moe::ExpertPlacement::largestCapacity(d, p_.alignment));
    }
    p_.at = offsetsOf(p_);
    for (int call = 0; call < p_.calls; ++call) {
      for (int rank = 0; rank < d.ranks; ++rank) inputs_.push_back(randomInput(p_.tokens[call][rank]));
    }
  }

  /// firstEpoch: of the first call.
  MoeOutcome run(int blocks, int warps, std::uint64_t timeout = waitTimeout,
                 std::uint64_t firstEpoch = Body::Dispatch::Scratch::firstEpoch) {
    Backend<> backend;
    const int ranks = p_.dimensions.ranks;
    const auto dispatchSlots = Body::Dispatch::scratchFor(p_.dimensions, p_.rowPacks, kind != RowKind::Plain);
    const auto combineSlots = Body::Combine::scratchFor(p_.dimensions, p_.resultPacks);
    REQUIRE(dispatchSlots.isValid());
    const Links links(backend, p_, dispatchSlots.windowBytes(), combineSlots.windowBytes(), Transport::initialByte);
    auto epochs = backend.allocate(ranks, 2 * epochWords * sizeof(std::uint64_t), 0);
    auto memory = backend.allocate(ranks, p_.at.bytes, poisonByte);
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<std::uint64_t> words(2 * epochWords, firstEpoch);
      words[maxBlocks] = words[epochWords + maxBlocks] = 0;
      epochs.write(rank, words);
      memory.write(rank, std::vector<std::byte>(sizeof(GridBarrier)), p_.at.barrier);
      memory.write(rank, std::vector<std::byte>(sizeof(GridGate)), p_.at.gate);
      for (int call = 0; call < p_.calls; ++call) {
        const MoeInput& input = inputOf(call, rank);
        const std::size_t shift = static_cast<std::size_t>(call) * p_.at.callBytes;
        memory.write(rank, input.experts, p_.at.experts + shift);
        memory.write(rank, input.weights, p_.at.weights + shift);
        memory.write(rank, input.rows, p_.at.rows + shift);
        memory.write(rank, input.scales, p_.at.scales + shift);
        memory.write(rank, input.results, p_.at.results + shift);
      }
    }
    MoeParameters p = p_;
    links.giveTo(p);
    p.epochs = epochs.window();
    p.memory = memory.window();
    p.wait = backend.wait(timeout);
    MoeOutcome outcome;
    typename Body::Dispatch::Args sizes{};
    sizes.dimensions = p_.dimensions;
    Body body{};
    body.p = p;
    const std::size_t shared = std::max(Body::Dispatch::sharedBytes(sizes, {}),
                                        Body::Combine::sharedBytes(typename Body::Combine::Args{}, {}));
    outcome.record = backend.run({ranks, blocks, warps, shared}, body);
    for (int rank = 0; rank < ranks && outcome.error.empty(); ++rank) {
      const auto bytes = memory.template read<std::byte>(rank);
      for (int call = 0; call < p_.calls && outcome.error.empty(); ++call) {
        outcome.error = errorOf(bytes, call, rank);
        if (!outcome.error.empty()) {
          outcome.error += " (rank " + std::to_string(rank) + ", call " + std::to_string(call) + ")";
        }
      }
    }
    return outcome;
  }

  const MoeParameters& parameters() const { return p_; }

 private:
  const MoeInput& inputOf(int call, int rank) const {
    return inputs_[static_cast<std::size_t>(call * p_.dimensions.ranks + rank)];
  }

  MoeInput randomInput(std::uint32_t tokens) {
    const auto& d = p_.dimensions;
    const auto topk = static_cast<std::size_t>(d.topk);
    MoeInput input;
    input.experts.resize(tokens * topk);
    input.weights.resize(tokens * topk);
    for (std::uint32_t token = 0; token < tokens; ++token) {
      const bool isDropped = random_() % 9 == 0;
      for (std::size_t j = 0; j < topk; ++j) {
        std::int64_t& expert = input.experts[token * topk + j];
        // Some experts are chosen often, and some choices are dropped, out of range or repeated.
        expert = static_cast<std::int64_t>(random_() % static_cast<unsigned>(random_() % 2 == 0 ? d.experts : 2));
        if (expert >= d.experts) expert = 0;
        if (isDropped || random_() % 8 == 0) expert = random_() % 2 == 0 ? -1 : d.experts;
        input.weights[token * topk + j] = static_cast<float>(static_cast<int>(random_() % 2001) - 1000) / 977;
      }
    }
    input.rows = randomBits<std::byte>(std::size_t{tokens} * p_.rowPacks * 16, static_cast<unsigned>(random_()));
    if (kind == RowKind::Quantised) {
      const auto values =
          randomElements<bf16>(std::size_t{tokens} * p_.rowPacks * 16, static_cast<unsigned>(random_()));
      input.rows.resize(values.size() * sizeof(bf16));
      if (!values.empty()) std::memcpy(input.rows.data(), values.data(), input.rows.size());
    }
    if (kind == RowKind::Scaled) input.scales = randomBits<float>(tokens * groups(), static_cast<unsigned>(random_()));
    input.results =
        randomElements<bf16>(std::size_t{p_.capacity} * p_.resultPacks * 8, static_cast<unsigned>(random_()));
    return input;
  }
  std::size_t groups() const { return (p_.rowPacks + moe::groupPacks - 1) / moe::groupPacks; }

  /// The choices of a token that count, as pairs (expert, weight), of one rank or, for -1, of all.
  struct Choice {
    std::int64_t expert;
    float weight;
  };
  std::vector<Choice> choicesOf(const MoeInput& input, std::uint32_t token, int rank) const {
    const auto& d = p_.dimensions;
    std::vector<Choice> choices;
    std::vector<bool> isChosen(static_cast<std::size_t>(d.experts));
    for (std::size_t j = 0; j < static_cast<std::size_t>(d.topk); ++j) {
      const std::size_t at = token * static_cast<std::size_t>(d.topk) + j;
      const std::int64_t expert = input.experts[at];
      if (expert < 0 || expert >= d.experts || isChosen[static_cast<std::size_t>(expert)]) continue;
      isChosen[static_cast<std::size_t>(expert)] = true;
      if (rank >= 0 && expert / d.expertsPerRank() != rank) continue;
      choices.push_back({expert, p_.hasWeights ? input.weights[at] : 1.0f});
    }
    return choices;
  }

  /// Where a rank's rows belong: first[expert], and the row of every (rank, token, expert) in order.
  struct Rows {
    std::vector<std::uint32_t> counts, offsets;
    std::vector<moe::RowOrigin> origins;  ///< [capacity]; rank -1: padding
  };
  Rows rowsOf(int call, int rank) const {
    const auto& d = p_.dimensions;
    const auto perRank = static_cast<std::size_t>(d.expertsPerRank());
    Rows rows;
    rows.counts.assign(perRank, 0);
    std::vector<std::vector<moe::RowOrigin>> ofExpert(perRank);
    for (int from = 0; from < d.ranks; ++from) {
      for (std::uint32_t token = 0; token < p_.tokens[call][from]; ++token) {
        int index = 0;
        for (const Choice& choice : choicesOf(inputOf(call, from), token, rank)) {
          const auto local = static_cast<std::size_t>(choice.expert) % perRank;
          ofExpert[local].push_back({from, static_cast<std::int32_t>(token), index++, choice.weight});
        }
      }
    }
    rows.origins.assign(p_.capacity, moe::RowOrigin{-1, 0, 0, 0});
    std::uint32_t end = 0;
    for (std::size_t expert = 0; expert < perRank; ++expert) {
      const auto count = static_cast<std::uint32_t>(ofExpert[expert].size());
      rows.counts[expert] = count;
      rows.offsets.push_back(end);
      for (std::uint32_t i = 0; i < count; ++i) {
        if (end + i < p_.capacity) rows.origins[end + i] = ofExpert[expert][i];
      }
      end += p_.stride > 0 ? p_.stride : (count + p_.alignment - 1) / p_.alignment * p_.alignment;
    }
    rows.offsets.push_back(end);
    return rows;
  }

  std::string errorOf(const std::vector<std::byte>& memory, int call, int rank) const {
    const std::size_t shift = static_cast<std::size_t>(call) * p_.at.callBytes;
    const Rows wanted = rowsOf(call, rank);
    if (slice<std::uint32_t>(memory, p_.at.counts + shift, wanted.counts.size()) != wanted.counts) return "counts";
    if (slice<std::uint32_t>(memory, p_.at.offsets + shift, wanted.offsets.size()) != wanted.offsets) return "offsets";
    const auto origins = slice<moe::RowOrigin>(memory, p_.at.origins + shift, p_.capacity);
    for (std::uint32_t row = 0; row < p_.capacity; ++row) {
      if (const std::string error = errorOfRow(memory, shift, call, row, wanted.origins[row], origins[row]);
          !error.empty()) {
        return error + " of expert row " + std::to_string(row);
      }
    }
    return p_.dispatchOnly ? "" : errorOfSums(memory, shift, call, rank);
  }

  std::string errorOfRow(const std::vector<std::byte>& memory, std::size_t shift, int call, std::uint32_t row,
                         const moe::RowOrigin& wanted, const moe::RowOrigin& origin) const {
    const std::size_t rowBytes = std::size_t{p_.rowPacks} * 16;
    const auto bytes = slice<std::byte>(memory, p_.at.expertRows + shift + row * rowBytes, rowBytes);
    const auto scales = slice<float>(memory, p_.at.expertScales + shift + row * groups() * 4, groups());
    moe::RowOrigin poison;
    std::memset(&poison, poisonByte, sizeof(poison));
    const std::vector<std::byte> poisonedBytes(rowBytes, std::byte{poisonByte});
    std::vector<float> poisonedScales(groups());
    std::memset(poisonedScales.data(), poisonByte, groups() * 4);
    if (wanted.rank < 0) {
      if (std::memcmp(&origin, &poison, sizeof(poison)) != 0) return "a written origin";
      if (bytes != poisonedBytes) return "written padding";
      return firstDifference(scales, poisonedScales) < 0 ? "" : "written scales";
    }
    if (std::memcmp(&origin, &wanted, sizeof(wanted)) != 0) return "a wrong origin";
    const MoeInput& input = inputOf(call, wanted.rank);
    const auto token = static_cast<std::size_t>(wanted.token);
    if (kind == RowKind::Quantised) return errorOfQuantised(input, token, bytes, scales);
    const auto first = input.rows.begin() + static_cast<std::ptrdiff_t>(token * rowBytes);
    if (!std::equal(bytes.begin(), bytes.end(), first)) return "wrong values";
    if (kind == RowKind::Plain) return firstDifference(scales, poisonedScales) < 0 ? "" : "written scales";
    return std::memcmp(scales.data(), &input.scales[token * groups()], groups() * 4) == 0 ? "" : "wrong scales";
  }

  std::string errorOfQuantised(const MoeInput& input, std::size_t token, const std::vector<std::byte>& bytes,
                               const std::vector<float>& scales) const {
    const std::size_t columns = std::size_t{p_.rowPacks} * 16;
    const auto values = slice<bf16>(input.rows, token * columns * 2, columns);
    for (std::size_t begin = 0; begin < columns; begin += quantisationGroup) {
      const std::size_t end = std::min(begin + quantisationGroup, columns);
      const float scale = scales[begin / quantisationGroup];
      double largest = 0;
      bool isFinite = true;
      for (std::size_t i = begin; i < end; ++i) {
        const double value = static_cast<double>(widen<bf16>(values[i]));
        isFinite = isFinite && std::isfinite(value);
        largest = std::fmax(largest, std::fabs(value));
      }
      if (!isFinite) {
        if (!std::isnan(scale)) return "a scale that is a number";
        continue;
      }
      if (!(std::fabs(static_cast<double>(scale) - largest / 448) <= largest / 448 * 1e-6 + 1.2e-38)) return "a scale";
      for (std::size_t i = begin; i < end; ++i) {
        const auto quantised = arch::bitCast<f8e4m3>(bytes[i]);
        const double value = static_cast<double>(widen<f8e4m3>(quantised)) * static_cast<double>(scale);
        const double wanted = static_cast<double>(widen<bf16>(values[i]));
        if (!(std::fabs(value - wanted) <= largest / 28 * 1.00001 + 1e-37)) return "a quantised value";
      }
    }
    return "";
  }

  std::string errorOfSums(const std::vector<std::byte>& memory, std::size_t shift, int call, int rank) const {
    const auto& d = p_.dimensions;
    const std::size_t columns = std::size_t{p_.resultPacks} * 8;
    const std::size_t tokens = p_.tokens[call][rank];
    const auto combined = slice<bf16>(memory, p_.at.combined + shift, d.maxTokens * columns);
    std::vector<Rows> rows;
    for (int r = 0; r < d.ranks; ++r) rows.push_back(rowsOf(call, r));
    for (std::size_t token = 0; token < tokens; ++token) {
      std::vector<MoeSum> sums(columns, MoeSum{0, 0, 0});
      for (int r = 0; r < d.ranks; ++r) {
        const auto choices = choicesOf(inputOf(call, rank), static_cast<std::uint32_t>(token), r);
        if (!choices.empty()) addPart(sums, rows[static_cast<std::size_t>(r)], inputOf(call, r), rank, token, choices);
      }
      for (std::size_t i = 0; i < columns; ++i) {
        const bf16 got = combined[token * columns + i];
        const bf16 ordered = narrow<bf16>(arch::canonicalNan(sums[i].ordered));
        const float value = widen<bf16>(got);
        const bool isSame = arch::bitCast<std::uint16_t>(got) == arch::bitCast<std::uint16_t>(ordered) ||
                            (std::isnan(value) && std::isnan(sums[i].ordered));
        if (!isSame) {
          return "token " + std::to_string(token) + ", element " + std::to_string(i) + " is " + std::to_string(value) +
                 " instead of " + std::to_string(widen<bf16>(ordered));
        }
        if (!std::isfinite(sums[i].ordered) || !std::isfinite(sums[i].exact)) continue;
        const double bound = sums[i].bound + std::fabs(sums[i].exact) / 256;
        if (!(std::fabs(static_cast<double>(value) - sums[i].exact) <= bound * 1.01)) {
          return "token " + std::to_string(token) + ", element " + std::to_string(i) + " is beyond the bound";
        }
      }
    }
    const std::vector<bf16> rest(combined.begin() + static_cast<std::ptrdiff_t>(tokens * columns), combined.end());
    std::vector<bf16> poison(rest.size());
    if (!poison.empty()) std::memset(static_cast<void*>(poison.data()), poisonByte, poison.size() * sizeof(bf16));
    return firstDifference(rest, poison) < 0 ? "" : "results beyond the last token";
  }

  /// Adds what one rank contributes to a token of `rank`.
  void addPart(std::vector<MoeSum>& sums, const Rows& rows, const MoeInput& atExpert, int rank, std::size_t token,
               const std::vector<Choice>& choices) const {
    const std::size_t columns = sums.size();
    const auto perRank = static_cast<std::size_t>(p_.dimensions.expertsPerRank());
    std::vector<MoeSum> part(columns, MoeSum{0, 0, 0});
    for (const Choice& choice : choices) {
      const auto local = static_cast<std::size_t>(choice.expert) % perRank;
      std::uint32_t row = rows.offsets[local];
      while (rows.origins[row].rank != rank || rows.origins[row].token != static_cast<std::int32_t>(token)) ++row;
      for (std::size_t i = 0; i < columns; ++i) {
        const float value = widen<bf16>(atExpert.results[row * columns + i]);
        part[i].ordered = Backend<>::onGpu ? std::fma(choice.weight, value, part[i].ordered)
                                           : choice.weight * value + part[i].ordered;
        const double term = static_cast<double>(choice.weight) * static_cast<double>(value);
        part[i].exact += term;
        part[i].bound += std::fabs(term) * 1e-6;
      }
    }
    for (std::size_t i = 0; i < columns; ++i) {
      sums[i].ordered += widen<bf16>(narrow<bf16>(arch::canonicalNan(part[i].ordered)));
      sums[i].exact += part[i].exact;
      sums[i].bound += part[i].bound + std::fabs(part[i].exact) / 256 + 1e-38;
    }
  }

  MoeParameters p_;
  std::mt19937 random_;
  std::vector<MoeInput> inputs_;
};

/// Parameters of varied calls: random numbers of tokens, none on some ranks.
inline MoeParameters moeParameters(int ranks, int expertsPerRank, int topk, std::uint32_t maxTokens, int calls,
                                   unsigned seed) {
  MoeParameters p{};
  p.dimensions = {maxTokens, topk, ranks * expertsPerRank, ranks};
  p.calls = calls;
  p.rowPacks = 3;
  p.resultPacks = 2;
  p.alignment = 1;
  p.hasWeights = true;
  p.slowRank = p.absentRank = p.smallRank = p.sentCall = -1;
  p.maxBlocks = 4;
  p.ranksPerHost = 1;
  std::mt19937 random(seed);
  for (int call = 0; call < calls; ++call) {
    for (int rank = 0; rank < ranks; ++rank) {
      p.tokens[call][rank] = random() % 4 == 0 ? 0 : random() % 3 == 0 ? maxTokens : random() % (maxTokens + 1);
    }
  }
  return p;
}

template <class Transport, RowKind kind>
void checkMoe(const MoeParameters& p, int blocks, int warps, unsigned seed,
              std::uint64_t firstEpoch = moe::RowSlots<Transport>::firstEpoch) {
  const auto outcome = MoeTester<Transport, kind>(p, seed).run(blocks, warps, waitTimeout, firstEpoch);
  if (outcome.record) FAIL_CHECK(describe(*outcome.record));
  CHECK(outcome.error == "");
}

}  // namespace mscclpp::test
