// The operators that multiply matrices and communicate (docs/fusing.md). Called as those of collectives.hpp.
#pragma once

#include <optional>
#include <tuple>

#include "collectives.hpp"

namespace mscclpp::python::ops {

// input: (..., depth), with at least two dimensions; weight: (width, depth), as torch.nn.Linear has it. A product is
// input * transpose of weight, of bfloat16. Both are bfloat16, without scales, or float8_e4m3fn: then element (r, c) of
// a product is multiplied by inputScales[r] * weightScales[c]. These are of float32: inputScales (rows,), (rows, 1) or
// (..., 1); weightScales (width,), (width, 1) or (1, width). useFastAccum: with fp8,
// GemmLayer::fastAccumulation.

/// The sum of the products over the ranks: (..., width).
Tensor gemmAllReduce(const Tensor& input, const Tensor& weight, const std::string& group,
                     const std::optional<Tensor>& inputScales, const std::optional<Tensor>& weightScales,
                     bool useFastAccum);
/// Of that sum, rank r gets part r of the first dimension: (ranks * d, ..., depth) gives (d, ..., width).
Tensor gemmReduceScatter(const Tensor& input, const Tensor& weight, const std::string& group,
                         const std::optional<Tensor>& inputScales, const std::optional<Tensor>& weightScales,
                         bool useFastAccum);
/// The product of the inputs of all ranks: (d, ..., depth) gives (ranks * d, ..., width).
Tensor allGatherGemm(const Tensor& input, const Tensor& weight, const std::string& group,
                     const std::optional<Tensor>& inputScales, const std::optional<Tensor>& weightScales,
                     bool useFastAccum);

// The first two with a residual, of the shape of their result, and RMSNorm. normWeight: (width,).

/// Return the normalised rows and the new residual.
std::tuple<Tensor, Tensor> gemmAllReduceRmsNorm(const Tensor& input, const Tensor& weight,
                                                const std::optional<Tensor>& residual, const Tensor& normWeight,
                                                const std::string& group, double epsilon,
                                                const std::optional<Tensor>& inputScales,
                                                const std::optional<Tensor>& weightScales, bool useFastAccum);
std::tuple<Tensor, Tensor> gemmReduceScatterRmsNorm(const Tensor& input, const Tensor& weight,
                                                    const std::optional<Tensor>& residual, const Tensor& normWeight,
                                                    const std::string& group, double epsilon,
                                                    const std::optional<Tensor>& inputScales,
                                                    const std::optional<Tensor>& weightScales, bool useFastAccum);
/// Return the quantised rows, their scales and the new residual, as allReduceRmsNormQuantised() (rms_norm.hpp).
std::tuple<Tensor, Tensor, Tensor> gemmAllReduceRmsNormQuantised(
    const Tensor& input, const Tensor& weight, const std::optional<Tensor>& residual, const Tensor& normWeight,
    const std::string& group, const std::string& quantisation, const std::optional<Tensor>& scale, double epsilon,
    const std::optional<Tensor>& inputScales, const std::optional<Tensor>& weightScales, bool useFastAccum);
std::tuple<Tensor, Tensor, Tensor> gemmReduceScatterRmsNormQuantised(
    const Tensor& input, const Tensor& weight, const std::optional<Tensor>& residual, const Tensor& normWeight,
    const std::string& group, const std::string& quantisation, const std::optional<Tensor>& scale, double epsilon,
    const std::optional<Tensor>& inputScales, const std::optional<Tensor>& weightScales, bool useFastAccum);

}  // namespace mscclpp::python::ops
