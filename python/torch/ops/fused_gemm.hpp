// The operators that multiply matrices and communicate (docs/fusing.md), of bfloat16. Called as those of
// collectives.hpp.
#pragma once

#include "collectives.hpp"

namespace mscclpp::python::ops {

// input: (..., depth), with at least two dimensions; weight: (width, depth), as torch.nn.Linear has it. A product is
// input * transpose of weight.

/// The sum of the products over the ranks: (..., width).
Tensor gemmAllReduce(const Tensor& input, const Tensor& weight, const std::string& group);
/// Of that sum, rank r gets part r of the first dimension: (ranks * d, ..., depth) gives (d, ..., width).
Tensor gemmReduceScatter(const Tensor& input, const Tensor& weight, const std::string& group);
/// The product of the inputs of all ranks: (d, ..., depth) gives (ranks * d, ..., width).
Tensor allGatherGemm(const Tensor& input, const Tensor& weight, const std::string& group);

}  // namespace mscclpp::python::ops
