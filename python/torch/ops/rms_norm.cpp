#include "rms_norm.hpp"

#include <torch/csrc/stable/ops.h>

#include <algorithm>

#include "mscclpp/kernels/rms_norm_call.hpp"
#include "python_error.hpp"

namespace mscclpp::python::ops {

namespace {

bool isAligned(const Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 16 == 0;
}

// What the kernels can read: the tensor, or a copy where it is not contiguous or begins in the middle of 16 bytes.
Tensor toReadable(const Tensor& tensor) {
  const Tensor contiguous = toContiguous(tensor);
  return isAligned(contiguous) ? contiguous : torch::stable::clone(contiguous);
}

void requireShapes(const char* op, const Tensor& tensor, const std::optional<Tensor>& residual, const Tensor& weight) {
  const auto shape = shapeOf(tensor), weightShape = shapeOf(weight);
  if (shape.empty() || weightShape.size() != 1 || weightShape[0] != shape.back()) {
    throwInvalid(op, "tensor has shape " + toString(shape) + " and weight " + toString(weightShape) +
                         "; they are (..., hidden) and (hidden,)");
  }
  requireAlike(op, "weight", weight, "tensor", tensor);
  if (!residual) return;
  if (!std::ranges::equal(shapeOf(*residual), shape)) {
    throwInvalid(op, "residual has shape " + toString(shapeOf(*residual)) + ", tensor " + toString(shape) +
                         ": pass the same shape");
  }
  requireAlike(op, "residual", *residual, "tensor", tensor);
}

struct Outputs {
  Tensor normalised;
  Tensor newResidual;
};

void run(const char* op, const Tensor& tensor, const std::optional<Tensor>& residual, const Tensor& weight,
         const std::string& group, double epsilon, const Outputs& outputs) {
  const auto named = findGroup(group);
  const std::size_t hidden = countOf(weight);
  RmsNormCall call{.input = tensor.data_ptr(),
                   .residual = residual ? residual->data_ptr() : nullptr,
                   .weight = weight.data_ptr(),
                   .newResidual = outputs.newResidual.data_ptr(),
                   .normalised = outputs.normalised.data_ptr(),
                   .rows = hidden == 0 ? 0 : countOf(tensor) / hidden,
                   .hidden = hidden,
                   .type = typeOf(op, tensor),
                   .epsilon = static_cast<float>(epsilon)};
  withCollectives(*named, tensor, [&](Collectives& collectives, CUstream_st* stream) {
    call.stream = stream;
    collectives.allReduceRmsNorm(call);
  });
}

}  // namespace

std::tuple<Tensor, Tensor> allReduceRmsNorm(const Tensor& tensor, const std::optional<Tensor>& residual,
                                            const Tensor& weight, const std::string& group, double epsilon) {
  return withPythonErrors([&] {
    const char* const op = "all_reduce_rms_norm";
    requireShapes(op, tensor, residual, weight);
    const Outputs outputs{makeLike(tensor, shapeOf(tensor)), makeLike(tensor, shapeOf(tensor))};
    const auto readable = residual ? std::optional(toReadable(*residual)) : std::nullopt;
    run(op, toReadable(tensor), readable, toReadable(weight), group, epsilon, outputs);
    return std::tuple(outputs.normalised, outputs.newResidual);
  });
}

void allReduceRmsNormInPlace(const Tensor& tensor, const Tensor& residual, const Tensor& weight,
                             const std::string& group, double epsilon) {
  withPythonErrors([&] {
    const char* const op = "all_reduce_rms_norm_";
    requireShapes(op, tensor, residual, weight);
    requireContiguous(op, "tensor", tensor);
    requireContiguous(op, "residual", residual);
    run(op, tensor, residual, toReadable(weight), group, epsilon, {tensor, residual});
  });
}

}  // namespace mscclpp::python::ops
