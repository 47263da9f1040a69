#include "rms_norm.hpp"

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <array>
#include <vector>

#include "python_error.hpp"

namespace mscclpp::python::ops {

namespace {

bool isAligned(const Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 16 == 0;
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

/// The call but for its outputs and the input.
RmsNormCall callFor(const char* op, const Tensor& tensor, const Tensor& weight, double epsilon) {
  const std::size_t hidden = countOf(weight);
  return {.weight = weight.data_ptr(),
          .rows = hidden == 0 ? 0 : countOf(tensor) / hidden,
          .hidden = hidden,
          .type = typeOf(op, tensor),
          .epsilon = static_cast<float>(epsilon)};
}

/// Runs the call on readable copies of the inputs.
void run(RmsNormCall call, const Tensor& tensor, const std::optional<Tensor>& residual, const std::string& group) {
  call.input = tensor.data_ptr();
  call.residual = residual ? residual->data_ptr() : nullptr;
  withCollectives(*findGroup(group), tensor, [&](Collectives& collectives, CUstream_st* stream) {
    call.stream = stream;
    collectives.allReduceRmsNorm(call);
  });
}

struct NamedQuantisation {
  const char* name;
  Quantisation value;
};
constexpr NamedQuantisation quantisations[] = {{"fp8_static", Quantisation::Fp8Static},
                                               {"fp8_per_row", Quantisation::Fp8PerRow},
                                               {"fp8_per_group", Quantisation::Fp8PerGroup},
                                               {"int8_per_row", Quantisation::Int8PerRow}};

Quantisation toQuantisation(const char* op, const std::string& name) {
  std::string known;
  for (const NamedQuantisation& each : quantisations) {
    if (name == each.name) return each.value;
    known += (known.empty() ? "" : ", ") + std::string(each.name);
  }
  throwInvalid(op, "there is no quantisation '" + name + "': use one of " + known);
}

}  // namespace

Tensor toReadable(const Tensor& tensor) {
  const Tensor contiguous = toContiguous(tensor);
  return isAligned(contiguous) ? contiguous : torch::stable::clone(contiguous);
}

std::tuple<Tensor, Tensor> makeQuantisedRows(const char* op, RmsNormCall& call, const Tensor& like,
                                             std::span<const std::int64_t> shape, const std::string& quantisation,
                                             const std::optional<Tensor>& scale) {
  call.quantisation = toQuantisation(op, quantisation);
  const bool isStatic = call.quantisation == Quantisation::Fp8Static;
  if (isStatic != scale.has_value()) {
    throwInvalid(op, isStatic ? "fp8_static has one scale for all rows: pass scale, a tensor of one float32"
                              : quantisation + " computes its scales: pass no scale");
  }
  if (isStatic &&
      (countOf(*scale) != 1 || typeOf(op, *scale) != DataType::FLOAT32 || scale->is_cpu() != like.is_cpu())) {
    throwInvalid(op, "scale is no tensor of one float32 on the device of the others: pass one");
  }
  const bool isInt = call.quantisation == Quantisation::Int8PerRow;
  const Tensor rows = makeLike(like, shape, isInt ? DataType::INT8 : DataType::FLOAT8_E4M3FN);
  std::vector<std::int64_t> scalesShape(shape.begin(), shape.end());
  scalesShape.back() = static_cast<std::int64_t>(call.scalesOfRow());
  const Tensor scales = isStatic ? makeLike(like, std::array<std::int64_t, 1>{0}, DataType::FLOAT32)
                                 : makeLike(like, scalesShape, DataType::FLOAT32);
  call.quantised = rows.data_ptr();
  call.scales = isStatic ? nullptr : static_cast<float*>(scales.data_ptr());
  call.scale = isStatic ? static_cast<const float*>(scale->data_ptr()) : nullptr;
  return std::tuple(rows, scales);
}

std::tuple<Tensor, Tensor> allReduceRmsNorm(const Tensor& tensor, const std::optional<Tensor>& residual,
                                            const Tensor& weight, const std::string& group, double epsilon) {
  return withPythonErrors([&] {
    const char* const op = "all_reduce_rms_norm";
    requireShapes(op, tensor, residual, weight);
    const Tensor normalised = makeLike(tensor, shapeOf(tensor)), newResidual = makeLike(tensor, shapeOf(tensor));
    const auto readable = residual ? std::optional(toReadable(*residual)) : std::nullopt;
    const Tensor weights = toReadable(weight);
    RmsNormCall call = callFor(op, tensor, weights, epsilon);
    call.normalised = normalised.data_ptr();
    call.newResidual = newResidual.data_ptr();
    run(call, toReadable(tensor), readable, group);
    return std::tuple(normalised, newResidual);
  });
}

void allReduceRmsNormInPlace(const Tensor& tensor, const Tensor& residual, const Tensor& weight,
                             const std::string& group, double epsilon) {
  withPythonErrors([&] {
    const char* const op = "all_reduce_rms_norm_";
    requireShapes(op, tensor, residual, weight);
    requireContiguous(op, "tensor", tensor);
    requireContiguous(op, "residual", residual);
    const Tensor weights = toReadable(weight);
    RmsNormCall call = callFor(op, tensor, weights, epsilon);
    call.normalised = tensor.data_ptr();
    call.newResidual = residual.data_ptr();
    run(call, tensor, residual, group);
  });
}

std::tuple<Tensor, Tensor, Tensor> allReduceRmsNormQuantised(const Tensor& tensor,
                                                             const std::optional<Tensor>& residual,
                                                             const Tensor& weight, const std::string& group,
                                                             const std::string& quantisation,
                                                             const std::optional<Tensor>& scale, double epsilon) {
  return withPythonErrors([&] {
    const char* const op = "all_reduce_rms_norm_quantised";
    requireShapes(op, tensor, residual, weight);
    const Tensor weights = toReadable(weight);
    RmsNormCall call = callFor(op, tensor, weights, epsilon);
    const auto [quantised, scales] = makeQuantisedRows(op, call, tensor, shapeOf(tensor), quantisation, scale);
    const Tensor newResidual = makeLike(tensor, shapeOf(tensor));
    const auto readable = residual ? std::optional(toReadable(*residual)) : std::nullopt;
    call.newResidual = newResidual.data_ptr();
    run(call, toReadable(tensor), readable, group);
    return std::tuple(quantised, scales, newResidual);
  });
}

}  // namespace mscclpp::python::ops
