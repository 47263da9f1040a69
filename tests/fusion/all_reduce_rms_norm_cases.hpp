// Cases of fusion/all_reduce_rms_norm.hpp: all outputs against a reference in double precision, and bitwise between
// ranks, shapes and patterns.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "mscclpp/fusion/all_reduce_rms_norm.hpp"
#include "mscclpp/sync/grid_barrier.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/sanitizer.hpp"
#include "tests/backend/test_data.hpp"
#include "tests/collective/reference.hpp"

namespace mscclpp::test {

inline constexpr int maxNormCalls = 4;

/// A few calls on one scratch, all of which have rows of the same length.
struct NormCase {
  std::size_t hidden;
  std::vector<std::size_t> rows;  ///< of each call, at most maxNormCalls
  bool inPlace = false;           ///< the normalised rows over the contributions, the new residual over the old one
  bool hasResidual = true;
  bool writesNormalised = true;
};

struct NormLaunch {
  int ranks;
  int blocks;
  int warps;
};

inline constexpr float normEpsilon = 1e-5f;
inline constexpr float staticScale = 0.015f;

/// Offsets in bytes in the data window of a rank.
struct NormLayout {
  std::size_t weight, scale;
  std::size_t input[maxNormCalls], residual[maxNormCalls], newResidual[maxNormCalls], normalised[maxNormCalls],
      quantised[maxNormCalls], scales[maxNormCalls];
  std::size_t bytes;
};

template <class C>
struct NormBody {
  using T = typename C::Element;
  Window<> scratch, epochs, data, barriers;
  NormLayout layout;
  BoundedWait wait;
  std::size_t maxCount, hidden;
  std::size_t rows[maxNormCalls];
  int calls, ranks;
  bool hasResidual, writesNormalised;

  MSCCLPP_HOST_DEVICE typename C::Args args(int rank) const {
    typename C::Args args{};
    args.team = decltype(args.team)(rank, ranks);
    for (int r = 0; r < ranks; ++r) args.window.base[r] = scratch.at(r);
    args.epochs = {reinterpret_cast<std::uint64_t*>(epochs.at(rank))};
    args.scratch = C::scratchFor(maxCount, ranks);
    args.wait = wait;
    args.hidden = hidden;
    return args;
  }
  MSCCLPP_HOST_DEVICE RmsNormArrays<T> arrays(int rank, int call) const {
    const auto at = [&](std::size_t offset) { return reinterpret_cast<T*>(data.at(rank, offset)); };
    RmsNormArrays<T> arrays{};
    arrays.weight = at(layout.weight);
    arrays.epsilon = normEpsilon;
    arrays.residual = hasResidual ? at(layout.residual[call]) : nullptr;
    arrays.newResidual = at(layout.newResidual[call]);
    arrays.normalised = writesNormalised ? at(layout.normalised[call]) : nullptr;
    arrays.quantised = data.at(rank, layout.quantised[call]);
    arrays.scales = reinterpret_cast<float*>(data.at(rank, layout.scales[call]));
    arrays.scale = reinterpret_cast<const float*>(data.at(rank, layout.scale));
    return arrays;
  }

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    auto barrierWait = wait;
    auto& barrier = *reinterpret_cast<GridBarrier*>(barriers.at(rank));
    auto args = this->args(rank);
    for (int call = 0; call < calls; ++call) {
      args.count = rows[call] * hidden;
      const ArraySource<T> source(reinterpret_cast<const T*>(data.at(rank, layout.input[call])));
      C::run(grid, args, source, arrays(rank, call));
      if (!barrier.sync(grid, barrierWait)) return;
    }
  }
};

/// Contributions: small values; some rows have a NaN, infinities, or packs that equal the sentinel.
template <class T>
std::vector<T> contributions(std::size_t rows, std::size_t hidden, int rank, unsigned seed) {
  std::mt19937 random(seed * 97 + static_cast<unsigned>(rank));
  std::vector<T> values(rows * hidden);
  for (T& value : values) value = narrow<T>(static_cast<float>(random() % 2001) / 256 - 4);
  for (std::size_t row = 0; row < rows; ++row) {
    T* const first = &values[row * hidden];
    const std::size_t at = row * 13 % hidden;
    if (row % 11 == 5 && rank == 0) first[at] = narrow<T>(std::numeric_limits<float>::quiet_NaN());
    if (row % 11 == 7) first[at] = narrow<T>(std::numeric_limits<float>::infinity());
    if (row % 11 == 8 && rank == 0) std::memset(static_cast<void*>(first), Sentinel::initialByte, 16);
    if (row % 11 == 9) std::fill(first, first + hidden, narrow<T>(-0.0f));
  }
  return values;
}

inline bool sameFloat(double wanted, double actual, double tolerance) {
  if (std::isnan(wanted) || std::isnan(actual)) return std::isnan(wanted) && std::isnan(actual);
  if (std::isinf(wanted)) return wanted == actual;
  return std::fabs(wanted - actual) <= tolerance;
}

/// The error of a quantised value against the value, beyond what is allowed; empty if there is none.
template <Quantisation quantisation>
std::string quantisedError(double value, float scale, unsigned char byte) {
  constexpr bool isInt = quantisation == Quantisation::Int8PerRow;
  const double q = isInt ? static_cast<double>(static_cast<signed char>(byte))
                         : static_cast<double>(static_cast<float>(arch::bitCast<f8e4m3>(byte)));
  const double largest = QuantisedType<quantisation>::largest;
  bool right = false;
  if (std::isnan(scale) || std::isnan(value)) {
    right = isInt ? q == 0 : std::isnan(q);
  } else if (std::fabs(value) >= largest * scale) {
    right = q == std::copysign(largest, value);
  } else {
    const double unit = isInt ? 0.5 * scale : std::fmax(std::fabs(value) / 16, scale / 1024.0);
    right = std::fabs(q * scale - value) <= unit * 1.001;
  }
  return right ? "" : std::to_string(value) + " became " + std::to_string(q) + " * " + std::to_string(scale);
}

/// Runs the calls; returns all bytes of rank 0 after checking them, and that the other ranks have the same outputs.
template <class T, AllReduceRmsNormConfig config, int Width>
class NormTester {
 public:
  using C = AllReduceRmsNorm<T, config>;

  NormTester(const NormLaunch& launch, const NormCase& test) : shape_(launch), test_(test) {
    std::size_t most = 0;
    for (const std::size_t rows : test.rows) most = std::max(most, rows);
    body_.maxCount = most * test.hidden;
    body_.hidden = test.hidden;
    body_.calls = static_cast<int>(test.rows.size());
    body_.ranks = launch.ranks;
    body_.hasResidual = test.hasResidual;
    body_.writesNormalised = test.writesNormalised;
    std::size_t bytes = 0;
    const auto reserve = [&](std::size_t size) {
      const std::size_t at = bytes;
      bytes = roundUp(bytes + size + 16, 128);
      return at;
    };
    NormLayout& l = body_.layout;
    l.weight = reserve(test.hidden * sizeof(T));
    l.scale = reserve(sizeof(float));
    for (std::size_t c = 0; c < test.rows.size(); ++c) {
      const std::size_t count = test.rows[c] * test.hidden;
      body_.rows[c] = test.rows[c];
      l.input[c] = reserve(count * sizeof(T));
      l.residual[c] = reserve(count * sizeof(T));
      l.newResidual[c] = test.inPlace ? l.residual[c] : reserve(count * sizeof(T));
      l.normalised[c] = test.inPlace ? l.input[c] : reserve(count * sizeof(T));
      l.quantised[c] = reserve(count);
      l.scales[c] = reserve(test.rows[c] * ceilDivide(test.hidden, quantisationGroup) * sizeof(float));
    }
    l.bytes = bytes;
  }

  /// The memory of rank 0 after two launches.
  std::vector<unsigned char> run() {
    const auto scratchLayout = C::scratchFor(body_.maxCount, shape_.ranks);
    auto scratch = backend_.allocate(shape_.ranks, scratchLayout.windowBytes(), C::Scratch::initialByte);
    auto epochs = backend_.allocate(shape_.ranks, epochWords * sizeof(std::uint64_t), 0);
    for (int rank = 0; rank < shape_.ranks; ++rank) {
      epochs.write(rank, std::vector<std::uint64_t>(epochWords, C::Scratch::firstEpoch));
    }
    body_.scratch = scratch.window();
    body_.epochs = epochs.window();
    std::vector<unsigned char> result;
    for (unsigned launch = 0; launch < 2; ++launch) {
      auto data = backend_.allocate(shape_.ranks, body_.layout.bytes, poisonByte);
      auto barriers = backend_.allocate(shape_.ranks, 128, 0);
      fill(data, launch);
      body_.data = data.window();
      body_.barriers = barriers.window();
      body_.wait = backend_.wait();
      execute();
      result = check(data);
    }
    return result;
  }

 private:
  void execute() {
    const int threads = shape_.warps * Backend<Width>::warpWidth;
    const auto record =
        backend_.run({shape_.ranks, shape_.blocks, shape_.warps,
                      C::sharedBytes(body_.args(0), {shape_.blocks, threads}, Backend<Width>::warpWidth)},
                     body_);
    if (record) FAIL(describe(*record));
  }

  template <class Buffers>
  void fill(Buffers& data, unsigned launch) {
    const NormLayout& l = body_.layout;
    inputs_.assign(test_.rows.size(), {});
    residuals_.clear();
    weight_ = contributions<T>(1, test_.hidden, 77, launch);
    for (std::size_t c = 0; c < test_.rows.size(); ++c) {
      const auto seed = launch * 8 + static_cast<unsigned>(c);
      residuals_.push_back(contributions<T>(test_.rows[c], test_.hidden, 99, seed));
      for (int rank = 0; rank < shape_.ranks; ++rank) {
        inputs_[c].push_back(contributions<T>(test_.rows[c], test_.hidden, rank, seed));
        if (test_.rows[c] == 0) continue;
        data.write(rank, inputs_[c].back(), l.input[c]);
        data.write(rank, residuals_[c], l.residual[c]);
      }
    }
    for (int rank = 0; rank < shape_.ranks; ++rank) {
      data.write(rank, weight_, l.weight);
      data.write(rank, std::vector<float>{staticScale}, l.scale);
    }
  }

  template <class Buffers>
  std::vector<unsigned char> check(const Buffers& data) {
    std::vector<unsigned char> first;
    for (int rank = 0; rank < shape_.ranks; ++rank) {
      CAPTURE(rank);
      auto bytes = data.template read<unsigned char>(rank);
      for (std::size_t c = 0; c < test_.rows.size(); ++c) {
        const std::string error = test_.rows[c] == 0 ? "" : differenceOf(c, bytes);
        CHECK(error == "");
        // What differs by intention: the contributions.
        if (!test_.inPlace || !test_.writesNormalised) {
          std::memset(bytes.data() + body_.layout.input[c], 0, test_.rows[c] * test_.hidden * sizeof(T));
        }
      }
      if (rank == 0) first = bytes;
      CHECK(firstDifference(first, bytes) == -1);
    }
    return first;
  }

  /// What is wrong with the outputs of a call, or nothing.
  std::string differenceOf(std::size_t c, const std::vector<unsigned char>& bytes) const {
    const NormLayout& l = body_.layout;
    const std::size_t hidden = test_.hidden;
    const std::size_t groups = ceilDivide(hidden, quantisationGroup);
    const auto sums = referenceOf<T, Sum>(inputs_[c]);
    const auto at = [&](std::size_t offset, std::size_t i) {
      T value;
      std::memcpy(static_cast<void*>(&value), bytes.data() + offset + i * sizeof(T), sizeof(T));
      return value;
    };
    const double precision = sizeof(T) == 4 ? 3e-6 : std::is_same_v<T, f16> ? 1.0 / 1024 : 1.0 / 128;
    for (std::size_t row = 0; row < test_.rows[c]; ++row) {
      std::vector<T> h(hidden), y(hidden);
      double squares = 0;
      for (std::size_t i = 0; i < hidden; ++i) {
        const std::size_t e = row * hidden + i;
        h[i] = test_.hasResidual ? narrow<T>(widen<T>(sums[e]) + widen<T>(residuals_[c][e])) : sums[e];
        squares += static_cast<double>(widen<T>(h[i])) * static_cast<double>(widen<T>(h[i]));
        const T written = at(l.newResidual[c], e);
        if (!(isNan(h[i]) && isNan(written)) && std::memcmp(&h[i], &written, sizeof(T)) != 0) {
          return "new residual " + std::to_string(row) + ", " + std::to_string(i);
        }
      }
      const float mean = static_cast<float>(squares / static_cast<double>(hidden));  // overflows as the library's does
      const double factor = 1 / std::sqrt(static_cast<double>(mean) + static_cast<double>(normEpsilon));
      for (std::size_t i = 0; i < hidden; ++i) {
        const double wanted = static_cast<double>(widen<T>(h[i])) * factor * static_cast<double>(widen<T>(weight_[i]));
        y[i] = narrow<T>(static_cast<float>(wanted));
        if (!test_.writesNormalised) continue;
        const T written = at(l.normalised[c], row * hidden + i);
        if (!sameFloat(wanted, static_cast<double>(widen<T>(written)), std::fabs(wanted) * precision + 1e-7)) {
          return "normalised " + std::to_string(row) + ", " + std::to_string(i) + ": " +
                 std::to_string(widen<T>(written)) + " instead of " + std::to_string(wanted);
        }
        y[i] = written;
      }
      if constexpr (config.quantisation != Quantisation::None) {
        if (!test_.writesNormalised) continue;  // y is not known to the bit
        constexpr bool perGroup = config.quantisation == Quantisation::Fp8PerGroup;
        const std::size_t step = perGroup ? quantisationGroup : hidden;
        for (std::size_t begin = 0; begin < hidden; begin += step) {
          const std::size_t end = std::min(begin + step, hidden);
          float scale = staticScale;
          if constexpr (config.quantisation != Quantisation::Fp8Static) {
            double most = 0;
            bool isFinite = true;
            for (std::size_t i = begin; i < end; ++i) {
              const double magnitude = std::fabs(static_cast<double>(widen<T>(y[i])));
              isFinite = isFinite && std::isfinite(magnitude);
              most = std::fmax(most, magnitude);
            }
            const double wanted = std::fmax(most / QuantisedType<config.quantisation>::largest, 1.17549435e-38);
            std::memcpy(&scale, bytes.data() + l.scales[c] + (perGroup ? row * groups + begin / step : row) * 4, 4);
            if (isFinite ? !sameFloat(wanted, static_cast<double>(scale), wanted * 1e-6) : !std::isnan(scale)) {
              return "scale " + std::to_string(row) + ": " + std::to_string(scale) + " instead of " +
                     std::to_string(wanted);
            }
          }
          for (std::size_t i = begin; i < end; ++i) {
            const auto error = quantisedError<config.quantisation>(static_cast<double>(widen<T>(y[i])), scale,
                                                                   bytes[l.quantised[c] + row * hidden + i]);
            if (error != "") return "quantised " + std::to_string(row) + ", " + std::to_string(i) + ": " + error;
          }
        }
      }
    }
    return "";
  }

  NormLaunch shape_;
  NormCase test_;
  NormBody<C> body_{};
  Backend<Width> backend_;
  std::vector<std::vector<std::vector<T>>> inputs_;
  std::vector<std::vector<T>> residuals_;
  std::vector<T> weight_;
};

template <class T, AllReduceRmsNormConfig config, int Width = 4>
std::vector<unsigned char> checkNorm(const NormLaunch& launch, const NormCase& test) {
  CAPTURE(launch.ranks);
  CAPTURE(test.hidden);
  return NormTester<T, config, Width>(launch, test).run();
}

/// Emulated blocks have few threads: each holds many packs.
inline constexpr int testedPacks = Backend<>::onGpu ? 0 : 64;
/// Warps that hold a row of 1,024 packs: on a GPU with 4 packs per thread.
inline constexpr int longRowWarps = Backend<>::onGpu ? 8 : 4;
template <Protocol protocol, Pattern pattern, int ranks = 0, Quantisation quantisation = Quantisation::None>
inline constexpr AllReduceRmsNormConfig normConfig{protocol, pattern, ranks, quantisation, testedPacks};

TEST_CASE("all-reduce and RMSNorm: one-shot, any number of ranks and rows") {
  constexpr auto config = normConfig<Protocol::Sentinel, Pattern::OneShot>;
  for (const int ranks : thinned({1, 2, 3, 5, 8}, {1, 3})) {
    checkNorm<bf16, config>({ranks, ranks < 4 ? 2 : 1, 4}, {64, {3, 0, 1, 21}, false, ranks != 2});
  }
  checkNorm<bf16, config>({2, 2, 1}, {64, {128, 1}, true});
  checkNorm<bf16, config>({2, 1, longRowWarps}, {7168, {2}, true});
  checkNorm<bf16, config>({2, 1, 3}, {1048, {9, 4}});  // warps without a row, a last chunk that is not full
}

TEST_CASE("all-reduce and RMSNorm: two-shot, any number of ranks and rows, int8") {
  constexpr auto config = normConfig<Protocol::LL16, Pattern::TwoShot, 0, Quantisation::Int8PerRow>;
  for (const int ranks : thinned({1, 2, 3, 8}, {2, 3})) {
    checkNorm<bf16, config>({ranks, ranks < 4 ? 2 : 1, 4}, {64, {3, 0, 1, 21}, ranks == 3});
  }
  checkNorm<bf16, config>({2, 2, 1}, {64, {1000}, true});
  checkNorm<bf16, config>({3, 1, 4}, {4096, {3, 1}});
}

TEST_CASE("all-reduce and RMSNorm: numbers of ranks fixed at compile time, fp8 with a scale per row and a static one") {
  constexpr auto perRow = normConfig<Protocol::Sentinel, Pattern::TwoShot, 2, Quantisation::Fp8PerRow>;
  checkNorm<float, perRow>({2, 2, 4}, {4096, {3, 12, 1}});
  constexpr auto withStatic = normConfig<Protocol::Sentinel, Pattern::OneShot, 4, Quantisation::Fp8Static>;
  checkNorm<f16, withStatic>({4, 1, longRowWarps}, {8192, {2, 1}, true});
  checkNorm<f16, withStatic>({4, 1, 4}, {72, {12, 3}, false, true, false});
}

/// Rows of as many packs as 4 warps hold, and of fewer, so that some threads hold fewer than others. More rows than
/// blocks: a row is loaded while the one before is normalised, in place too.
template <Protocol protocol, Pattern pattern, int fixedRanks, int packs>
void checkRowsLoadedAhead(int ranks) {
  constexpr AllReduceRmsNormConfig config{protocol, pattern, fixedRanks, Quantisation::None, packs};
  const std::size_t longest = static_cast<std::size_t>(4 * Backend<4>::warpWidth * packs) * packSize<bf16>;
  checkNorm<bf16, config>({ranks, 2, 4}, {longest, {7, 0, 1, 2}, true});
  checkNorm<bf16, config>({ranks, 2, 4}, {longest - 3 * packSize<bf16>, {1, 7}});
  checkNorm<bf16, config>({ranks, 1, 4}, {longest / 4, {9}, false, false});
}

TEST_CASE("all-reduce and RMSNorm: rows loaded ahead, one and two packs for each thread") {
  checkRowsLoadedAhead<Protocol::Sentinel, Pattern::OneShot, 2, 1>(2);
  checkRowsLoadedAhead<Protocol::Sentinel, Pattern::OneShot, 2, 2>(2);
  checkRowsLoadedAhead<Protocol::Sentinel, Pattern::TwoShot, 2, 2>(2);
  checkRowsLoadedAhead<Protocol::LL16, Pattern::TwoShot, 3, 2>(3);
  checkRowsLoadedAhead<Protocol::LL8, Pattern::OneShot, 0, 2>(3);
  checkRowsLoadedAhead<Protocol::LL16, Pattern::OneShot, 5, 2>(5);  // too many ranks to load ahead
}

TEST_CASE("all-reduce and RMSNorm: fp8 with a scale per group") {
  constexpr auto config = normConfig<Protocol::Sentinel, Pattern::OneShot, 2, Quantisation::Fp8PerGroup>;
  checkNorm<bf16, config, 32>({2, 1, 2}, {1040, {12, 3}});
  checkNorm<bf16, config, 32>({2, 1, 1}, {64, {12}, true});
  if constexpr (!Backend<>::onGpu) checkNorm<bf16, config, 1>({2, 1, 2}, {456, {12, 3}});
}

TEST_CASE("all-reduce and RMSNorm: the bits do not depend on shape, pattern and protocol") {
  constexpr auto oneShot = normConfig<Protocol::Sentinel, Pattern::OneShot, 0, Quantisation::Fp8PerRow>;
  constexpr auto twoShot = normConfig<Protocol::LL8, Pattern::TwoShot, 0, Quantisation::Fp8PerRow>;
  const NormCase test{1016, {21, 3}, true};  // of float: sums of squares of bf16 are nearly exact in any order
  const auto bytes = checkNorm<float, oneShot>({3, 1, 4}, test);
  CHECK(firstDifference(bytes, checkNorm<float, oneShot>({3, 2, 3}, test)) == -1);
  CHECK(firstDifference(bytes, checkNorm<float, twoShot>({3, 2, 2}, test)) == -1);
  CHECK(firstDifference(bytes, checkNorm<float, twoShot>({3, 2, 1}, test)) == -1);  // a row in one warp
}

TEST_CASE("all-reduce and RMSNorm: arguments that do not fit are refused") {
  using C = AllReduceRmsNorm<bf16, AllReduceRmsNormConfig{}>;
  C::Args args{};
  args.team = Team<>(0, 4);
  args.scratch = C::scratchFor(10 * 4096, 4);
  args.count = 10 * 4096;
  CHECK(C::accepts(args, {1, 32}));  // not yet a length of rows
  args.hidden = 4096;
  CHECK(C::accepts(args, {1, 512}));
  CHECK(C::accepts(args, {1, 128}));
  CHECK_FALSE(C::accepts(args, {1, 64}));
  args.hidden = 8192;
  CHECK(C::accepts(args, {1, 256}));
  args.hidden = 16384;
  CHECK_FALSE(C::accepts(args, {1, 512}));  // two rows and a half
  args.hidden = 4097;
  CHECK_FALSE(C::accepts(args, {1, 512}));
  args.hidden = 4096;
  args.count = 11 * 4096;
  CHECK_FALSE(C::accepts(args, {1, 512}));
  using Short = AllReduceRmsNorm<bf16, AllReduceRmsNormConfig{.ranks = 2, .packsPerThread = 2}>;
  CHECK(Short::shapeFor(1, 4096, 132).threads == 256);
  CHECK(Short::shapeFor(1, 8192, 132).threads == 512);
  CHECK(Short::shapeFor(300, 72, 264).threads == 32);
  CHECK(Short::shapeFor(300, 72, 264).blocks == 264);
  CHECK(betterRmsNormPattern(16 << 10, 8) == Pattern::OneShot);
  CHECK(betterRmsNormPattern(1 << 20, 8) == Pattern::TwoShot);
}

}  // namespace mscclpp::test
