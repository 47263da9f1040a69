// The operators that are an all-reduce with residual and RMSNorm (docs/fusion.md). Called as those of collectives.hpp.
#pragma once

#include <optional>
#include <tuple>

#include "collectives.hpp"

namespace mscclpp::python::ops {

/// Returns the normalised rows and the new residual. tensor, residual: (..., hidden); weight: (hidden,).
std::tuple<Tensor, Tensor> allReduceRmsNorm(const Tensor& tensor, const std::optional<Tensor>& residual,
                                            const Tensor& weight, const std::string& group, double epsilon);
/// Returns the quantised rows, their scales and the new residual. quantisation: "fp8_static", with one scale, a tensor
/// of one float32, for all rows, and empty scales; "fp8_per_row" and "int8_per_row", with scales (..., 1);
/// "fp8_per_group", with scales (..., hidden / 128, rounded up). Of float16 or bfloat16.
std::tuple<Tensor, Tensor, Tensor> allReduceRmsNormQuantised(const Tensor& tensor,
                                                             const std::optional<Tensor>& residual,
                                                             const Tensor& weight, const std::string& group,
                                                             const std::string& quantisation,
                                                             const std::optional<Tensor>& scale, double epsilon);
/// The normalised rows replace the tensor, and the new residual the residual.
void allReduceRmsNormInPlace(const Tensor& tensor, const Tensor& residual, const Tensor& weight,
                             const std::string& group, double epsilon);

}  // namespace mscclpp::python::ops
