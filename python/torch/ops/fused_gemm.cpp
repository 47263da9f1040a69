#include "fused_gemm.hpp"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "python_error.hpp"
#include "rms_norm.hpp"

namespace mscclpp::python::ops {

namespace {

/// What a caller multiplies.
struct GivenOperands {
  const Tensor& input;
  const Tensor& weight;
  const std::optional<Tensor>& inputScales;
  const std::optional<Tensor>& weightScales;
  bool useFastAccum;
};

/// Throws unless the shapes of input and weight, and their types and devices, fit together. Returns their type.
DataType requireOperands(const char* op, const GivenOperands& given) {
  const auto& [input, weight, inputScales, weightScales, useFastAccum] = given;
  const auto shape = shapeOf(input), weightShape = shapeOf(weight);
  if (shape.size() < 2 || weightShape.size() != 2 || weightShape[1] != shape.back()) {
    throwInvalid(op, "input has shape " + toString(shape) + " and weight " + toString(weightShape) +
                         "; they are (..., depth), with two dimensions or more, and (width, depth)");
  }
  requireAlike(op, "weight", weight, "input", input);
  if (weightShape[0] == 0 || weightShape[1] == 0) throwInvalid(op, "weight has no elements: pass one that has");
  const DataType type = typeOf(op, input);
  if (type == DataType::BFLOAT16) {
    if (useFastAccum) throwInvalid(op, "operands of bfloat16 are summed up in fp32: leave use_fast_accum out");
    if (inputScales || weightScales) throwInvalid(op, "operands of bfloat16 have no scales: leave them out");
  } else if (type != DataType::FLOAT8_E4M3FN) {
    throwInvalid(op, "the elements are neither bfloat16 nor float8_e4m3fn: convert input and weight");
  } else if (!inputScales || !weightScales) {
    throwInvalid(op, "operands of float8_e4m3fn need scales: pass input_scales and weight_scales, of float32");
  }
  return type;
}

/// A tensor of scales, contiguous. shapes: those that it may have, the first with one dimension; rows: whose it is.
Tensor toScales(const char* op, const char* name, const Tensor& scales, const Tensor& input,
                std::initializer_list<std::vector<std::int64_t>> shapes, const std::string& rows) {
  if (typeOf(op, scales) != DataType::FLOAT32) throwInvalid(op, std::string(name) + " are not float32: convert them");
  requireSameDevice(op, name, scales, "input", input);
  const auto fits = [&](const auto& shape) { return std::ranges::equal(shape, shapeOf(scales)); };
  if (std::ranges::none_of(shapes, fits)) {
    throwInvalid(op, std::string(name) + " have shape " + toString(shapeOf(scales)) + ": pass " +
                         toString(*shapes.begin()) + ", one for each row of " + rows +
                         ", repeated if there is one for all");
  }
  return toContiguous(scales);
}

/// The operands of a call, contiguous, and the shape of its result.
struct Operands {
  std::shared_ptr<NamedGroup> group;
  DataType type;
  Tensor input, weight;
  std::optional<Tensor> inputScales, weightScales;
  std::vector<std::int64_t> shape;
  std::size_t rows;  ///< of all ranks
  bool useFastAccum;
};

Operands operandsOf(const char* op, GemmCollective collective, const GivenOperands& given, const std::string& group) {
  const auto named = findGroup(group);
  const DataType type = requireOperands(op, given);
  const Tensor input = toContiguous(given.input), weight = toContiguous(given.weight);
  const auto inputShape = shapeOf(input);
  const auto ranks = static_cast<std::int64_t>(named->ranks()), width = shapeOf(weight)[0];
  std::vector<std::int64_t> shape(inputShape.begin(), inputShape.end());
  shape.back() = 1;
  std::int64_t rows = 1;
  for (const std::int64_t extent : shape) rows *= extent;
  std::optional<Tensor> inputScales, weightScales;
  if (type == DataType::FLOAT8_E4M3FN) {
    inputScales = toScales(op, "input_scales", *given.inputScales, input, {{rows}, {rows, 1}, shape}, "input");
    weightScales =
        toScales(op, "weight_scales", *given.weightScales, input, {{width}, {width, 1}, {1, width}}, "weight");
  }
  shape.back() = width;
  if (collective == GemmCollective::AllGather) {
    shape[0] *= ranks;
    rows *= ranks;
  }
  if (collective == GemmCollective::ReduceScatter) {
    if (shape[0] % ranks != 0) throwIndivisible(op, input, *named);
    shape[0] /= ranks;
  }
  return {
      named, type, input, weight, inputScales, weightScales, shape, static_cast<std::size_t>(rows), given.useFastAccum};
}

/// Runs a call that has its output, or a norm with outputs.
void run(GemmCollective collective, const Operands& operands, FusedGemmCall call) {
  call.input = operands.input.data_ptr();
  call.weight = operands.weight.data_ptr();
  call.rows = operands.rows;
  call.width = static_cast<std::size_t>(operands.shape.back());
  call.depth = static_cast<std::size_t>(shapeOf(operands.input).back());
  if (operands.inputScales) call.inputScales = static_cast<const float*>(operands.inputScales->data_ptr());
  if (operands.weightScales) call.weightScales = static_cast<const float*>(operands.weightScales->data_ptr());
  onDeviceOf(operands.input, [&](std::optional<int> gpu, CUstream_st* stream) {
    call.stream = stream;
    operands.group->gemms(gpu).run(collective, call, operands.type, operands.useFastAccum);
  });
}

/// A new tensor like the result of a call.
Tensor makeResult(const Operands& operands) {
  return makeLike(operands.input, operands.shape, DataType::BFLOAT16);
}

Tensor run(const char* op, GemmCollective collective, const GivenOperands& given, const std::string& group) {
  return withPythonErrors([&] {
    const Operands operands = operandsOf(op, collective, given, group);
    const Tensor output = makeResult(operands);
    run(collective, operands, {.output = output.data_ptr()});
    return output;
  });
}

/// What follows the products: the inputs of the norm, readable by the kernels, and its new residual.
struct Norm {
  Tensor weight;
  std::optional<Tensor> residual;
  Tensor newResidual;
  RmsNormCall call;
};

Norm normOf(const char* op, const Operands& operands, const std::optional<Tensor>& residual, const Tensor& weight,
            double epsilon) {
  const auto require = [&](const char* name, const Tensor& tensor, std::span<const std::int64_t> shape) {
    if (!std::ranges::equal(shapeOf(tensor), shape)) {
      throwInvalid(op, std::string(name) + " has shape " + toString(shapeOf(tensor)) + ": pass " + toString(shape));
    }
    if (typeOf(op, tensor) != DataType::BFLOAT16) {
      throwInvalid(op, std::string(name) + " is not bfloat16, as the product is: convert it");
    }
    requireSameDevice(op, name, tensor, "input", operands.input);
  };
  require("norm_weight", weight, std::span(operands.shape).last(1));
  if (residual) require("residual", *residual, operands.shape);
  Norm norm{
      toReadable(weight), residual ? std::optional(toReadable(*residual)) : std::nullopt, makeResult(operands), {}};
  norm.call.residual = norm.residual ? norm.residual->data_ptr() : nullptr;
  norm.call.weight = norm.weight.data_ptr();
  norm.call.newResidual = norm.newResidual.data_ptr();
  norm.call.hidden = static_cast<std::size_t>(operands.shape.back());
  norm.call.epsilon = static_cast<float>(epsilon);
  return norm;
}

std::tuple<Tensor, Tensor> runNorm(const char* op, GemmCollective collective, const GivenOperands& given,
                                   const std::optional<Tensor>& residual, const Tensor& normWeight,
                                   const std::string& group, double epsilon) {
  return withPythonErrors([&] {
    const Operands operands = operandsOf(op, collective, given, group);
    Norm norm = normOf(op, operands, residual, normWeight, epsilon);
    const Tensor normalised = makeResult(operands);
    norm.call.normalised = normalised.data_ptr();
    run(collective, operands, {.norm = &norm.call});
    return std::tuple(normalised, norm.newResidual);
  });
}

std::tuple<Tensor, Tensor, Tensor> runQuantised(const char* op, GemmCollective collective, const GivenOperands& given,
                                                const std::optional<Tensor>& residual, const Tensor& normWeight,
                                                const std::string& group, const std::string& quantisation,
                                                const std::optional<Tensor>& scale, double epsilon) {
  return withPythonErrors([&] {
    const Operands operands = operandsOf(op, collective, given, group);
    Norm norm = normOf(op, operands, residual, normWeight, epsilon);
    const auto [quantised, scales] =
        makeQuantisedRows(op, norm.call, operands.input, operands.shape, quantisation, scale);
    run(collective, operands, {.norm = &norm.call});
    return std::tuple(quantised, scales, norm.newResidual);
  });
}

}  // namespace

Tensor gemmAllReduce(const Tensor& input, const Tensor& weight, const std::string& group,
                     const std::optional<Tensor>& inputScales, const std::optional<Tensor>& weightScales,
                     bool useFastAccum) {
  return run("gemm_all_reduce", GemmCollective::AllReduce, {input, weight, inputScales, weightScales, useFastAccum},
             group);
}
Tensor gemmReduceScatter(const Tensor& input, const Tensor& weight, const std::string& group,
                         const std::optional<Tensor>& inputScales, const std::optional<Tensor>& weightScales,
                         bool useFastAccum) {
  return run("gemm_reduce_scatter", GemmCollective::ReduceScatter,
             {input, weight, inputScales, weightScales, useFastAccum}, group);
}
Tensor allGatherGemm(const Tensor& input, const Tensor& weight, const std::string& group,
                     const std::optional<Tensor>& inputScales, const std::optional<Tensor>& weightScales,
                     bool useFastAccum) {
  return run("all_gather_gemm", GemmCollective::AllGather, {input, weight, inputScales, weightScales, useFastAccum},
             group);
}
std::tuple<Tensor, Tensor> gemmAllReduceRmsNorm(const Tensor& input, const Tensor& weight,
                                                const std::optional<Tensor>& residual, const Tensor& normWeight,
                                                const std::string& group, double epsilon,
                                                const std::optional<Tensor>& inputScales,
                                                const std::optional<Tensor>& weightScales, bool useFastAccum) {
  return runNorm("gemm_all_reduce_rms_norm", GemmCollective::AllReduce,
                 {input, weight, inputScales, weightScales, useFastAccum}, residual, normWeight, group, epsilon);
}
std::tuple<Tensor, Tensor> gemmReduceScatterRmsNorm(const Tensor& input, const Tensor& weight,
                                                    const std::optional<Tensor>& residual, const Tensor& normWeight,
                                                    const std::string& group, double epsilon,
                                                    const std::optional<Tensor>& inputScales,
                                                    const std::optional<Tensor>& weightScales, bool useFastAccum) {
  return runNorm("gemm_reduce_scatter_rms_norm", GemmCollective::ReduceScatter,
                 {input, weight, inputScales, weightScales, useFastAccum}, residual, normWeight, group, epsilon);
}
std::tuple<Tensor, Tensor, Tensor> gemmAllReduceRmsNormQuantised(
    const Tensor& input, const Tensor& weight, const std::optional<Tensor>& residual, const Tensor& normWeight,
    const std::string& group, const std::string& quantisation, const std::optional<Tensor>& scale, double epsilon,
    const std::optional<Tensor>& inputScales, const std::optional<Tensor>& weightScales, bool useFastAccum) {
  return runQuantised("gemm_all_reduce_rms_norm_quantised", GemmCollective::AllReduce,
                      {input, weight, inputScales, weightScales, useFastAccum}, residual, normWeight, group,
                      quantisation, scale, epsilon);
}
std::tuple<Tensor, Tensor, Tensor> gemmReduceScatterRmsNormQuantised(
    const Tensor& input, const Tensor& weight, const std::optional<Tensor>& residual, const Tensor& normWeight,
    const std::string& group, const std::string& quantisation, const std::optional<Tensor>& scale, double epsilon,
    const std::optional<Tensor>& inputScales, const std::optional<Tensor>& weightScales, bool useFastAccum) {
  return runQuantised("gemm_reduce_scatter_rms_norm_quantised", GemmCollective::ReduceScatter,
                      {input, weight, inputScales, weightScales, useFastAccum}, residual, normWeight, group,
                      quantisation, scale, epsilon);
}

}  // namespace mscclpp::python::ops
