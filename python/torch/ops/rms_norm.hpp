// The operators that are an all-reduce with residual and RMSNorm (docs/fusion.md). Called as those of collectives.hpp.
#pragma once

#include <optional>
#include <tuple>

#include "collectives.hpp"
#include "mscclpp/kernels/rms_norm_call.hpp"

namespace mscclpp::python::ops {

/// What the kernels can read: the tensor, or a copy where it is not contiguous or begins in the middle of 16 bytes.
Tensor toReadable(const Tensor& tensor);

/// The 8-bit rows of a call and their scales: makes both for an output of this shape, as allReduceRmsNormQuantised()
/// says, and makes `call`, which has its `hidden`, write them. like: of the output's type and device.
std::tuple<Tensor, Tensor> makeQuantisedRows(const char* op, RmsNormCall& call, const Tensor& like,
                                             std::span<const std::int64_t> shape, const std::string& quantisation,
                                             const std::optional<Tensor>& scale);

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
