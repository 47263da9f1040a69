// Calls of GEMMs that reduce over the ranks, of random matrices: every element of the sum over the ranks of products is
// compared, and the bits of all ranks.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "gemm_tester.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/team.hpp"
#include "mscclpp/collective/row_scratch.hpp"
#include "mscclpp/fusion/gemm/pair_op.hpp"
#include "mscclpp/fusion/gemm/row_result.hpp"
#include "mscclpp/sync/grid_barrier.hpp"

namespace mscclpp::test {

/// Rounds, and delays the tiles of one rank.
template <class T>
struct SlowPairs : KeepPairs<T> {
  std::uint64_t delay;  ///< nanoseconds for each tile
  MSCCLPP_HOST_DEVICE Vector<T, 2> operator()(std::size_t row, std::size_t column, float first, float second) const {
    if (delay > 0 && column % 32 == 0) beLate(delay);
    return KeepPairs<T>::operator()(row, column, first, second);
  }
};

/// Ranks 0 and 1 contribute large values that cancel each other: only a sum in rank order is that of the other ranks.
/// As bf16, rank 1's packets equal the poison of packet/sentinel.hpp.
template <class T>
struct CancellingPairs : KeepPairs<T> {
  static constexpr int cancelled = 2;
  int rank;
  MSCCLPP_HOST_DEVICE Vector<T, 2> operator()(std::size_t row, std::size_t column, float first, float second) const {
    constexpr float large = 0x1.eep112f;
    if (rank < cancelled) first = second = rank == 0 ? large : -large;
    return KeepPairs<T>::operator()(row, column, first, second);
  }
};

/// Keeps the first of two columns, as a gated activation has one result for them.
template <class T>
struct FirstOfPairs {
  static constexpr int outputs = 1;
  MSCCLPP_HOST_DEVICE Vector<T, 1> operator()(std::size_t, std::size_t, float first, float) const {
    return {narrow<T>(first)};
  }
};

inline constexpr int maxGemmCalls = 3;

struct GemmCall {
  std::size_t rows;
  std::size_t width;  ///< of the result
  std::size_t depth;
  std::size_t gap;  ///< elements between the rows of the operands
  int calls;
  int repeats = 1;        ///< of all the calls
  std::size_t fewer = 0;  ///< rows that a call has less than the one before

  MSCCLPP_HOST_DEVICE std::size_t rowsOf(std::size_t index) const { return rows - index * fewer; }
};

/// C: a GemmReduce or a GemmPacketReduce.
template <class C, class T, class PairOp>
struct GemmReduceBody {
  using Operand = OperandOf<T, PairOp>;

  Window<> scratch, epochs, inputs, weights, inputScales, weightScales, outputs, barriers;
  typename C::Scratch layout;
  GemmCall call;
  int ranks;
  int slowRank;  ///< -1: none
  std::uint64_t delay;
  BoundedWait wait;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    typename C::Args args{.team = Team<>(rank, ranks),
                          .window = scratch,
                          .epochs = {reinterpret_cast<std::uint64_t*>(epochs.at(rank))},
                          .scratch = layout,
                          .count = call.rows,
                          .wait = wait};
    auto& barrier = *reinterpret_cast<GridBarrier*>(barriers.at(rank));
    auto stepWait = wait;
    const std::size_t pitch = call.depth + call.gap;
    const std::size_t outputRows = ceilDivide(call.rows, static_cast<std::size_t>(ranks)) *
                                   static_cast<std::size_t>(C::delivery == RowDelivery::ToOwner ? 1 : ranks);
    for (int i = 0; i < call.calls * call.repeats; ++i) {
      const auto index = static_cast<std::size_t>(i % call.calls);
      args.count = call.rowsOf(index);
      const GemmOperands<Operand, PairOp> operands{
          {reinterpret_cast<const Operand*>(inputs.at(rank)) + index * call.rows * pitch, args.count, call.depth,
           pitch},
          {reinterpret_cast<const Operand*>(weights.at(rank)), call.width * 2 / PairOp::outputs, call.depth, pitch},
          makeOp(rank, index)};
      const StoreRows<T> result{
          makeMatrix(reinterpret_cast<T*>(outputs.at(rank)) + index * outputRows * call.width, outputRows, call.width)};
      C::run(grid, args, operands, result);  // after a failure it does nothing
      if (!barrier.sync(grid, stepWait)) return;
    }
  }
  MSCCLPP_HOST_DEVICE PairOp makeOp(int rank, [[maybe_unused]] std::size_t index) const {
    if constexpr (!std::is_same_v<Operand, T>) {
      return {reinterpret_cast<const float*>(inputScales.at(rank)) + index * call.rows,
              reinterpret_cast<const float*>(weightScales.at(rank)), call.rowsOf(index), call.width};
    } else if constexpr (requires { PairOp::delay; }) {
      return {{}, rank == slowRank ? delay : 0};
    } else if constexpr (requires { PairOp::rank; }) {
      return {{}, rank};
    } else {
      return {};
    }
  }
};

struct GemmOutcome {
  std::optional<WaitRecord> record;
  std::string wrong;  ///< the first wrong element; empty: all are right
};

/// Makes the calls of `call` in one launch, each with other inputs, and checks all outputs, with what lies around them.
/// C: a collective of elements T. spoil(scratch buffers, layout): for mutants.
template <class C, class T, class PairOp, class Spoil>
GemmOutcome runGemmReduce(int ranks, int blocks, const GemmCall& call, int slowRank, std::uint64_t delay,
                          const Spoil& spoil, std::uint64_t timeout = waitTimeout) {
  using Operand = OperandOf<T, PairOp>;
  Backend<32> backend;
  constexpr bool isScatter = C::delivery == RowDelivery::ToOwner;
  const auto layout = C::scratchFor(call.rows, call.width, ranks);
  auto scratch = backend.allocate(ranks, layout.windowBytes(), C::Scratch::initialByte);
  spoil(scratch, layout);
  auto epochs = backend.allocate(ranks, epochWords * sizeof(std::uint64_t), 0);
  setEpochs(epochs, ranks, C::Scratch::firstEpoch);
  const auto team = static_cast<std::size_t>(ranks);
  const std::size_t slice = ceilDivide(call.rows, team);
  const std::size_t outputRows = slice * (isScatter ? 1 : team);
  const std::size_t pitch = call.depth + call.gap;
  const auto calls = static_cast<std::size_t>(call.calls);
  auto inputs = backend.allocate(ranks, calls * call.rows * pitch * sizeof(Operand) + 16, 0);
  constexpr std::size_t perResult = 2 / PairOp::outputs;  // columns of the product
  auto weights = backend.allocate(ranks, call.width * perResult * pitch * sizeof(Operand) + 16, 0);
  auto inputScales = backend.allocate(ranks, calls * call.rows * sizeof(float), 0);
  auto weightScales = backend.allocate(ranks, call.width * sizeof(float), 0);
  auto outputs = backend.allocate(ranks, calls * outputRows * call.width * sizeof(T), poisonByte);
  auto barriers = backend.allocate(ranks, 128, 0);
  std::vector<RankProduct> products;
  for (std::size_t i = 0; i < calls; ++i) {
    for (int rank = 0; rank < ranks; ++rank) {
      const auto seed = static_cast<unsigned>(rank);
      const auto a = randomMatrix<Operand>(call.rows, call.depth, pitch, seed + static_cast<unsigned>(i) * 100);
      const auto b = randomMatrix<Operand>(call.width * perResult, call.depth, pitch, seed + 1000);
      inputs.write(rank, a.data, i * call.rows * pitch * sizeof(Operand));
      weights.write(rank, b.data);
      products.push_back(RankProduct::of(a, b));
      if (std::is_same_v<Operand, T>) continue;
      const auto ofRows = randomScales(call.rows, seed + static_cast<unsigned>(i) * 100 + 300);
      const auto ofColumns = randomScales(call.width, seed + 400);
      inputScales.write(rank, ofRows, i * call.rows * sizeof(float));
      weightScales.write(rank, ofColumns);
      products.back().scale(ofRows.data(), ofColumns.data());
    }
  }
  const GemmReduceBody<C, T, PairOp> body{scratch.window(),
                                          epochs.window(),
                                          inputs.window(),
                                          weights.window(),
                                          inputScales.window(),
                                          weightScales.window(),
                                          outputs.window(),
                                          barriers.window(),
                                          layout,
                                          call,
                                          ranks,
                                          slowRank,
                                          delay,
                                          backend.wait(timeout)};
  GemmOutcome outcome;
  outcome.record = backend.run({ranks, blocks, C::maxBlockThreads / 32, C::sharedBytes({}, {})}, body);
  std::vector<std::vector<T>> results;
  for (int rank = 0; rank < ranks; ++rank) results.push_back(outputs.template read<T>(rank));
  const auto note = [&](std::size_t i, int rank, std::size_t row, std::size_t column, double got, double wanted) {
    if (outcome.wrong.empty()) outcome.wrong = wrongElement(i, rank, row, column, got, wanted);
  };
  for (std::size_t i = 0; i < calls; ++i) {
    const std::size_t rows = call.rowsOf(i), sliceRows = ceilDivide(rows, team);
    for (std::size_t r = 0; r < outputRows * (isScatter ? team : 1); ++r) {
      for (std::size_t c = 0; c < call.width; ++c) {
        double sum = 0, parts = 0, bound = 0;
        std::size_t from = 0;
        if constexpr (requires { PairOp::cancelled; }) from = PairOp::cancelled;
        for (; from < team && r < rows; ++from) {
          const RankProduct& product = products[i * team + from];
          const std::size_t at = (r * call.width + c) * perResult;
          sum += product.values[at];
          parts += std::fabs(product.values[at]);
          bound += productBound<Operand>(call.depth) * product.magnitudes[at];
        }
        bound += (parts + bound) * roundingOf<T>;           // each rank's product is rounded,
        bound += (std::fabs(sum) + bound) * roundingOf<T>;  // and so is the sum
        bound += 1e-6;                                      // denormals of f16
        for (int rank = 0; rank < ranks; ++rank) {
          std::size_t row = r;
          if (isScatter) {
            if (r / sliceRows != static_cast<std::size_t>(rank)) continue;
            row = r % sliceRows;
          }
          const T got = results[static_cast<std::size_t>(rank)][(i * outputRows + row) * call.width + c];
          if (r >= rows) {  // there is no such row: nothing is written
            if (arch::bitCast<std::uint16_t>(got) != 0x0101u * poisonByte) note(i, rank, r, c, widen<T>(got), NAN);
          } else if (!(std::fabs(static_cast<double>(widen<T>(got)) - sum) <= bound)) {
            note(i, rank, r, c, widen<T>(got), sum);
          } else if (const T first = results[0][(i * outputRows + row) * call.width + c];
                     !isScatter && arch::bitCast<std::uint16_t>(got) != arch::bitCast<std::uint16_t>(first)) {
            note(i, rank, r, c, widen<T>(got), widen<T>(first));
          }
        }
      }
    }
  }
  return outcome;
}

template <class C, class T, class PairOp = KeepPairs<T>>
void checkGemmReduce(int ranks, int blocks, const GemmCall& call) {
  CAPTURE(ranks);
  CAPTURE(call.rows);
  CAPTURE(call.width);
  CAPTURE(call.depth);
  const auto outcome = runGemmReduce<C, T, PairOp>(ranks, blocks, call, -1, 0, [](const auto&, const auto&) {});
  if (outcome.record) FAIL_CHECK(describe(*outcome.record));
  CHECK_MESSAGE(outcome.wrong.empty(), outcome.wrong);
}

}  // namespace mscclpp::test
