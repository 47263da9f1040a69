// The operators that are an all-reduce with residual and RMSNorm (docs/fusion.md). Called as those of collectives.hpp.
#pragma once

#include <optional>
#include <tuple>

#include "collectives.hpp"

namespace mscclpp::python::ops {

/// Returns the normalised rows and the new residual. tensor, residual: (..., hidden); weight: (hidden,).
std::tuple<Tensor, Tensor> allReduceRmsNorm(const Tensor& tensor, const std::optional<Tensor>& residual,
                                            const Tensor& weight, const std::string& group, double epsilon);
/// The normalised rows replace the tensor, and the new residual the residual.
void allReduceRmsNormInPlace(const Tensor& tensor, const Tensor& residual, const Tensor& weight,
                             const std::string& group, double epsilon);

}  // namespace mscclpp::python::ops
