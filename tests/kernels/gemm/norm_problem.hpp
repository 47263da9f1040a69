// Calls of fused GEMMs with a norm on random matrices, and the check of their outputs in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "mscclpp/basic/partition.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/kernels/fused_gemm.hpp"
#include "tests/fusion/gemm/gemm_tester.hpp"

namespace mscclpp::test {

inline constexpr Quantisation allQuantisations[] = {Quantisation::None, Quantisation::Fp8Static,
                                                    Quantisation::Fp8PerRow, Quantisation::Fp8PerGroup,
                                                    Quantisation::Int8PerRow};

/// Of a type of operands: whether they have scales, and its name.
template <class Operand>
inline constexpr bool hasScales = std::is_same_v<Operand, f8e4m3>;
template <class Operand>
inline constexpr DataType typeOf = hasScales<Operand> ? DataType::FLOAT8_E4M3FN : DataType::BFLOAT16;

/// The outputs of a call, each with one more element, which has to stay as it is.
struct GemmNormOutputs {
  std::vector<bf16> newResidual, normalised;
  std::vector<std::int8_t> quantised;
  std::vector<float> scales;
};

struct GemmNormSizes {
  std::size_t rows, width, depth;
};

/// The same call on all ranks, as one of them sees it, with operands bf16 or f8e4m3.
template <class Operand>
class GemmNormProblemOf {
 public:
  using Sizes = GemmNormSizes;
  static constexpr float epsilon = 1e-5f, scale = 0.02f;

  GemmNormProblemOf(GemmCollective collective, int rank, int ranks, const Sizes& sizes, Quantisation quantisation,
                    bool hasResidual)
      : sizes_(sizes),
        quantisation_(quantisation),
        hasResidual_(hasResidual),
        own_(collective == GemmCollective::ReduceScatter
                 ? steppedPart(sizes.rows, ceilDivide(sizes.rows, static_cast<std::size_t>(ranks)),
                               static_cast<std::size_t>(rank))
                 : Range{0, sizes.rows}),
        gain_(randomMatrix<bf16>(1, sizes.width, sizes.width, 7)),
        residual_(randomMatrix<bf16>(sizes.rows, sizes.width, sizes.width, 8)) {
    for (int r = 0; r < ranks; ++r) {
      const auto seed = static_cast<unsigned>(sizes.rows) * 16 + static_cast<unsigned>(r);
      auto input = randomMatrix<Operand>(sizes.rows, sizes.depth, sizes.depth, seed);
      auto weight = randomMatrix<Operand>(sizes.width, sizes.depth, sizes.depth, seed + 5000);
      products_.push_back(RankProduct::of(input, weight));
      if constexpr (hasScales<Operand>) {
        const auto ofRows = randomScales(sizes.rows, seed + 300), ofColumns = randomScales(sizes.width, seed + 400);
        products_.back().scale(ofRows.data(), ofColumns.data());
        if (r == rank) {
          inputScales_ = ofRows;
          weightScales_ = ofColumns;
        }
      }
      if (r != rank) continue;
      input_ = std::move(input.data);
      weight_ = std::move(weight.data);
    }
  }

  const Sizes& sizes() const { return sizes_; }
  const std::vector<Operand>& input() const { return input_; }
  const std::vector<Operand>& weight() const { return weight_; }
  /// Of input and weights; of bf16 there are none.
  const std::vector<float>& inputScales() const { return inputScales_; }
  const std::vector<float>& weightScales() const { return weightScales_; }
  const std::vector<bf16>& gain() const { return gain_.data; }
  /// Of this rank's rows.
  std::vector<bf16> residual() const {
    const auto at = [&](std::size_t row) {
      return residual_.data.begin() + static_cast<std::ptrdiff_t>(row * sizes_.width);
    };
    return {at(own_.begin), at(own_.end)};
  }
  GemmNormOutputs poisoned() const {
    const std::size_t elements = own_.size() * sizes_.width;
    return {std::vector<bf16>(elements + 1, narrow<bf16>(poison)),
            std::vector<bf16>(elements + 1, narrow<bf16>(poison)), std::vector<std::int8_t>(elements + 1, 101),
            std::vector<float>(own_.size() * scalesOfRow() + 1, poison)};
  }
  /// With arrays of the sizes of these, in memory of the device. All but the gain are null for a rank without rows.
  RmsNormCall norm(const bf16* gain, const bf16* residual, bf16* newResidual, bf16* normalised, void* quantised,
                   float* scales, const float* staticScale) const {
    const bool isPresent = own_.size() > 0, isQuantised = quantisation_ != Quantisation::None;
    return {.residual = hasResidual_ && isPresent ? residual : nullptr,
            .weight = gain,
            .newResidual = isPresent ? newResidual : nullptr,
            .normalised = isPresent && !isQuantised ? normalised : nullptr,
            .quantisation = quantisation_,
            .quantised = isPresent && isQuantised ? quantised : nullptr,
            .scales = isPresent && scalesOfRow() > 0 ? scales : nullptr,
            .scale = quantisation_ == Quantisation::Fp8Static ? staticScale : nullptr,
            .epsilon = epsilon};
  }

  /// What is wrong with the outputs; empty if nothing is.
  std::string differenceOf(const GemmNormOutputs& outputs) const {
    switch (quantisation_) {
      case Quantisation::None:
        return differenceOf<Quantisation::None>(outputs);
      case Quantisation::Int8PerRow:
        return differenceOf<Quantisation::Int8PerRow>(outputs);
      default:
        return differenceOf<Quantisation::Fp8PerRow>(outputs);
    }
  }

 private:
  static constexpr float poison = -77.0f;

  std::size_t scalesOfRow() const {
    return RmsNormCall{.quantisation = quantisation_, .hidden = sizes_.width}.scalesOfRow();
  }

  /// quantisation: one with the type of the rows.
  template <Quantisation quantisation>
  std::string differenceOf(const GemmNormOutputs& outputs) const {
    using Q = typename QuantisedType<quantisation>::Type;
    constexpr double most = QuantisedType<quantisation>::largest;
    const bool isQuantised = quantisation != Quantisation::None;
    const std::size_t width = sizes_.width;
    std::string wrong;
    const auto compare = [&](const char* what, std::size_t row, std::size_t column, double got, double wanted,
                             double bound) {
      if (std::fabs(got - wanted) <= bound || !wrong.empty()) return;
      wrong = std::string(what) + " of row " + std::to_string(row) + ", column " + std::to_string(column) + ": " +
              std::to_string(got) + " instead of " + std::to_string(wanted);
    };
    for (std::size_t row = own_.begin; row < own_.end; ++row) {
      const std::size_t index = row - own_.begin, first = index * width;
      double squares = 0;
      for (std::size_t c = 0; c < width; ++c) {
        double sum = 0, bound = 1e-6;
        for (const RankProduct& product : products_) {
          const double value = product.values[row * width + c];
          sum += value;
          bound += std::fabs(value) / 256 + productBound<Operand>(sizes_.depth) * product.magnitudes[row * width + c];
        }
        bound += (std::fabs(sum) + bound) / 256;
        if (hasResidual_) sum += residual_.at(row, c);
        const double got = static_cast<double>(widen<bf16>(outputs.newResidual[first + c]));
        compare("the new residual", row, c, got, sum, bound + (std::fabs(sum) + bound) / 256);
        squares += got * got;
      }
      // The norm is that of the rows as they were rounded.
      const double factor = 1 / std::sqrt(squares / static_cast<double>(width) + static_cast<double>(epsilon));
      std::vector<double> norms(width);
      for (std::size_t c = 0; c < width; ++c) {
        norms[c] = static_cast<double>(widen<bf16>(outputs.newResidual[first + c])) * factor * gain_.at(0, c);
      }
      if (!isQuantised) {
        for (std::size_t c = 0; c < width; ++c) {
          compare("the norm", row, c, widen<bf16>(outputs.normalised[first + c]), norms[c],
                  std::fabs(norms[c]) * 1.01 / 256);
        }
        continue;
      }
      const std::size_t scales = scalesOfRow(), ofScale = quantisation_ == Quantisation::Fp8PerGroup ? 128 : width;
      for (std::size_t begin = 0; begin < width; begin += ofScale) {
        const std::size_t end = std::min(begin + ofScale, width);
        double largest = 0;
        for (std::size_t c = begin; c < end; ++c) largest = std::fmax(largest, std::fabs(norms[c]));
        const double step = static_cast<double>(scales == 0 ? scale : outputs.scales[index * scales + begin / ofScale]);
        if (scales > 0) compare("the scale", row, begin, step, largest / most, largest / most * 1.01 / 256);
        for (std::size_t c = begin; c < end; ++c) {
          Q value;
          std::memcpy(&value, &outputs.quantised[first + c], 1);
          // bf16, then half a step of int8, or one of the 3 bits of the fraction of fp8.
          const double rounding =
              std::is_same_v<Q, std::int8_t> ? step / 2 : std::fmax(std::fabs(norms[c]) / 15, step / 1024);
          compare("the quantised norm", row, c, static_cast<double>(widen<Q>(value)) * step, norms[c],
                  std::fabs(norms[c]) / 200 + rounding * 1.01);
        }
      }
    }
    const bool isIntact = widen<bf16>(outputs.newResidual.back()) == poison &&
                          widen<bf16>(outputs.normalised.back()) == poison && outputs.quantised.back() == 101 &&
                          outputs.scales.back() == poison;
    if (!isIntact && wrong.empty()) wrong = "what is behind an output was written";
    return wrong;
  }

  Sizes sizes_;
  Quantisation quantisation_;
  bool hasResidual_;
  Range own_;  ///< the rows of the outputs
  HostMatrix<bf16> gain_, residual_;
  std::vector<Operand> input_, weight_;
  std::vector<float> inputScales_, weightScales_;
  std::vector<RankProduct> products_;
};
using GemmNormProblem = GemmNormProblemOf<bf16>;

/// Whether the outputs have the same bits on all ranks.
inline bool isSameOnAllRanks(Bootstrap& bootstrap, const GemmNormOutputs& outputs) {
  std::uint64_t hash = 14695981039346656037u;
  const auto add = [&](const auto& values) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
    for (std::size_t i = 0; i < values.size() * sizeof(values[0]); ++i) hash = (hash ^ bytes[i]) * 1099511628211u;
  };
  add(outputs.newResidual);
  add(outputs.normalised);
  add(outputs.quantised);
  add(outputs.scales);
  std::vector<std::uint64_t> all(static_cast<std::size_t>(bootstrap.getNranks()));
  all[static_cast<std::size_t>(bootstrap.getRank())] = hash;
  bootstrap.allGather(all.data(), sizeof(hash));
  return std::all_of(all.begin(), all.end(), [&](std::uint64_t each) { return each == hash; });
}

}  // namespace mscclpp::test
