// Cases of fusion/all_reduce_fp8.hpp: the stated bound of the error, and the same bits on all ranks.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "mscclpp/fusion/all_reduce_fp8.hpp"
#include "mscclpp/sync/grid_barrier.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"
#include "tests/collective/reference.hpp"

namespace mscclpp::test {

inline constexpr int maxFp8Calls = 4;

template <class C>
struct Fp8Body {
  using T = typename C::Element;
  Window<> scratch, epochs, data, barriers;
  BoundedWait wait;
  std::size_t maxCount;
  std::size_t counts[maxFp8Calls];
  std::size_t inputs[maxFp8Calls], outputs[maxFp8Calls];  ///< bytes
  int calls, ranks;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    typename C::Args args{};
    args.team = decltype(args.team)(rank, ranks);
    for (int r = 0; r < ranks; ++r) args.window.base[r] = scratch.at(r);
    args.epochs = {reinterpret_cast<std::uint64_t*>(epochs.at(rank))};
    args.scratch = C::scratchFor(maxCount, ranks);
    args.wait = wait;
    auto barrierWait = wait;
    for (int call = 0; call < calls; ++call) {
      args.count = counts[call];
      C::run(grid, args, ArraySource<T>(reinterpret_cast<const T*>(data.at(rank, inputs[call]))),
             ArraySink<T>(reinterpret_cast<T*>(data.at(rank, outputs[call]))));
      if (!reinterpret_cast<GridBarrier*>(barriers.at(rank))->sync(grid, barrierWait)) return;
    }
  }
};

/// Contributions whose magnitude differs between groups, by many powers of two; some groups have a NaN or an infinity,
/// or are zero.
template <class T>
std::vector<T> groupedValues(std::size_t count, int rank, unsigned seed) {
  std::mt19937 random(seed * 31 + static_cast<unsigned>(rank));
  std::vector<T> values(count);
  float factor = 1;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t group = i / quantisationGroup;
    if (i % quantisationGroup == 0) factor = std::ldexp(1.0f, static_cast<int>(random() % 17) - 8);
    float value = (static_cast<float>(random() % 2001) / 1000 - 1) * factor;
    if (group % 9 == 4) value = 0;
    if (group % 9 == 6 && i % quantisationGroup == 77 && rank == 0) value = std::numeric_limits<float>::quiet_NaN();
    if (group % 9 == 8 && i % quantisationGroup == 3) value = -std::numeric_limits<float>::infinity();
    values[i] = narrow<T>(value);
  }
  return values;
}

/// The first element whose error is beyond the bound, or nothing.
template <class T>
std::string errorOf(const std::vector<std::vector<T>>& inputs, const std::vector<T>& output) {
  const std::size_t ranks = inputs.size();
  for (std::size_t begin = 0; begin < output.size(); begin += quantisationGroup) {
    const std::size_t end = std::min(begin + quantisationGroup, output.size());
    const std::size_t owner = begin / 512 % ranks;
    std::vector<double> sums(end - begin, 0.0);
    double contributed = 0;
    double most = 0;
    bool isFinite = true;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      double largest = 0;
      for (std::size_t i = begin; i < end; ++i) {
        const double value = static_cast<double>(widen<T>(inputs[rank][i]));
        isFinite = isFinite && std::isfinite(value);
        sums[i - begin] += value;
        largest = std::fmax(largest, std::fabs(value));
      }
      if (rank != owner) contributed += largest / 28;
    }
    for (const double sum : sums) most = std::fmax(most, std::fabs(sum));
    for (std::size_t i = begin; i < end; ++i) {
      const double value = static_cast<double>(widen<T>(output[i]));
      const double wanted = sums[i - begin];
      const double rounding = std::fabs(wanted) / 256 + most * 1e-5;
      const bool right = isFinite ? std::fabs(value - wanted) <= contributed + (most + contributed) / 28 + rounding
                                  : std::isnan(value);
      if (!right)
        return "element " + std::to_string(i) + " is " + std::to_string(value) + ", sum " + std::to_string(wanted);
    }
  }
  return "";
}

template <class T, AllReduceFp8Config config, int Width = 4>
void checkFp8(int ranks, int blocks, int warps, const std::vector<std::size_t>& counts, bool inPlace = false,
              std::size_t shift = 0) {
  CAPTURE(ranks);
  using C = AllReduceFp8<T, config>;
  Backend<Width> backend;
  Fp8Body<C> body{};
  body.calls = static_cast<int>(counts.size());
  body.ranks = ranks;
  std::size_t bytes = 0;
  for (std::size_t c = 0; c < counts.size(); ++c) {
    body.counts[c] = counts[c];
    body.maxCount = std::max(body.maxCount, counts[c]);
    const auto reserve = [&] {
      const std::size_t at = bytes + shift * sizeof(T);
      bytes = roundUp(at + counts[c] * sizeof(T) + 16, 128);
      return at;
    };
    body.inputs[c] = reserve();
    body.outputs[c] = inPlace ? body.inputs[c] : reserve();
  }
  auto scratch = backend.allocate(ranks, C::scratchFor(body.maxCount, ranks).windowBytes(), C::Scratch::initialByte);
  auto epochs = backend.allocate(ranks, epochWords * sizeof(std::uint64_t), 0);
  auto data = backend.allocate(ranks, bytes, poisonByte);
  auto barriers = backend.allocate(ranks, 128, 0);
  std::vector<std::vector<std::vector<T>>> inputs(counts.size());
  for (int rank = 0; rank < ranks; ++rank) {
    epochs.write(rank, std::vector<std::uint64_t>(epochWords, C::Scratch::firstEpoch));
    for (std::size_t c = 0; c < counts.size(); ++c) {
      inputs[c].push_back(groupedValues<T>(counts[c], rank, static_cast<unsigned>(c)));
      if (counts[c] != 0) data.write(rank, inputs[c].back(), body.inputs[c]);
    }
  }
  body.scratch = scratch.window();
  body.epochs = epochs.window();
  body.data = data.window();
  body.barriers = barriers.window();
  body.wait = backend.wait();
  const auto record = backend.run({ranks, blocks, warps}, body);
  if (record) FAIL(describe(*record));
  std::vector<std::vector<T>> first;
  for (int rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank);
    auto memory = data.template read<unsigned char>(rank);
    for (std::size_t c = 0; c < counts.size(); ++c) {
      std::vector<T> output(counts[c]);
      if (counts[c] != 0) {
        std::memcpy(static_cast<void*>(output.data()), memory.data() + body.outputs[c], counts[c] * sizeof(T));
      }
      CHECK(errorOf(inputs[c], output) == "");
      if (rank == 0) first.push_back(output);
      CHECK(firstDifference(first[c], output) == -1);
      std::memset(memory.data() + body.inputs[c], poisonByte, counts[c] * sizeof(T));
      std::memset(memory.data() + body.outputs[c], poisonByte, counts[c] * sizeof(T));
    }
    CHECK(std::count(memory.begin(), memory.end(), poisonByte) == static_cast<std::ptrdiff_t>(bytes));
  }
}

TEST_CASE("all-reduce in fp8: any number of ranks and elements, misaligned") {
  for (const int ranks : {1, 2, 3, 8}) {
    checkFp8<bf16, AllReduceFp8Config{}>(ranks, ranks < 4 ? 2 : 1, 2, {5001, 1, 0, 12 * 512}, ranks == 3,
                                         static_cast<std::size_t>(ranks % 2));
  }
}
TEST_CASE("all-reduce in fp8: other types and protocols, ranks fixed at compile time") {
  checkFp8<float, AllReduceFp8Config{Protocol::LL16, 2}, 32>(2, 1, 2, {5001, 130, 515});
  checkFp8<f16, AllReduceFp8Config{Protocol::LL8, 4}, 8>(4, 1, 2, {9 * 512, 77}, true);
  if constexpr (!Backend<>::onGpu) checkFp8<float, AllReduceFp8Config{}, 1>(3, 1, 1, {5001, 3});
}

}  // namespace mscclpp::test
