#include "fused_gemm.hpp"

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "python_error.hpp"
#include "rms_norm.hpp"

namespace mscclpp::python::ops {

namespace {

void requireOperands(const char* op, const Tensor& input, const Tensor& weight) {
  const auto shape = shapeOf(input), weightShape = shapeOf(weight);
  if (shape.size() < 2 || weightShape.size() != 2 || weightShape[1] != shape.back()) {
    throwInvalid(op, "input has shape " + toString(shape) + " and weight " + toString(weightShape) +
                         "; they are (..., depth), with two dimensions or more, and (width, depth)");
  }
  requireAlike(op, "weight", weight, "input", input);
  if (typeOf(op, input) != DataType::BFLOAT16)
    throwInvalid(op, "the elements are not bfloat16: convert input and weight");
  if (weightShape[0] == 0 || weightShape[1] == 0) throwInvalid(op, "weight has no elements: pass one that has");
}

/// The operands of a call, contiguous, and the shape of its result.
struct Operands {
  std::shared_ptr<NamedGroup> group;
  Tensor input, weight;
  std::vector<std::int64_t> shape;
  std::size_t rows;  ///< of all ranks
};

Operands operandsOf(const char* op, GemmCollective collective, const Tensor& givenInput, const Tensor& givenWeight,
                    const std::string& group) {
  const auto named = findGroup(group);
  requireOperands(op, givenInput, givenWeight);
  const Tensor input = toContiguous(givenInput), weight = toContiguous(givenWeight);
  const auto inputShape = shapeOf(input);
  const auto ranks = static_cast<std::int64_t>(named->ranks());
  std::vector<std::int64_t> shape(inputShape.begin(), inputShape.end());
  shape.back() = shapeOf(weight)[0];
  std::size_t rows = countOf(input) / static_cast<std::size_t>(inputShape.back());
  if (collective == GemmCollective::AllGather) {
    rows *= named->ranks();
    shape[0] *= ranks;
  } else if (collective == GemmCollective::ReduceScatter) {
    if (shape[0] % ranks != 0) throwIndivisible(op, input, *named);
    shape[0] /= ranks;
  }
  return {named, input, weight, shape, rows};
}

/// Runs a call that has its output, or a norm with outputs.
void run(GemmCollective collective, const Operands& operands, FusedGemmCall call) {
  call.input = operands.input.data_ptr();
  call.weight = operands.weight.data_ptr();
  call.rows = operands.rows;
  call.width = static_cast<std::size_t>(operands.shape.back());
  call.depth = static_cast<std::size_t>(shapeOf(operands.input).back());
  onDeviceOf(operands.input, [&](std::optional<int> gpu, CUstream_st* stream) {
    call.stream = stream;
    operands.group->gemms(gpu).run(collective, call);
  });
}

Tensor run(const char* op, GemmCollective collective, const Tensor& input, const Tensor& weight,
           const std::string& group) {
  return withPythonErrors([&] {
    const Operands operands = operandsOf(op, collective, input, weight, group);
    const Tensor output = makeLike(operands.input, operands.shape);
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
    requireAlike(op, name, tensor, "input", operands.input);
  };
  require("norm_weight", weight, std::span(operands.shape).last(1));
  if (residual) require("residual", *residual, operands.shape);
  Norm norm{toReadable(weight),
            residual ? std::optional(toReadable(*residual)) : std::nullopt,
            makeLike(operands.input, operands.shape),
            {}};
  norm.call.residual = norm.residual ? norm.residual->data_ptr() : nullptr;
  norm.call.weight = norm.weight.data_ptr();
  norm.call.newResidual = norm.newResidual.data_ptr();
  norm.call.hidden = static_cast<std::size_t>(operands.shape.back());
  norm.call.epsilon = static_cast<float>(epsilon);
  return norm;
}

std::tuple<Tensor, Tensor> runNorm(const char* op, GemmCollective collective, const Tensor& input, const Tensor& weight,
                                   const std::optional<Tensor>& residual, const Tensor& normWeight,
                                   const std::string& group, double epsilon) {
  return withPythonErrors([&] {
    const Operands operands = operandsOf(op, collective, input, weight, group);
    Norm norm = normOf(op, operands, residual, normWeight, epsilon);
    const Tensor normalised = makeLike(operands.input, operands.shape);
    norm.call.normalised = normalised.data_ptr();
    run(collective, operands, {.norm = &norm.call});
    return std::tuple(normalised, norm.newResidual);
  });
}

std::tuple<Tensor, Tensor, Tensor> runQuantised(const char* op, GemmCollective collective, const Tensor& input,
                                                const Tensor& weight, const std::optional<Tensor>& residual,
                                                const Tensor& normWeight, const std::string& group,
                                                const std::string& quantisation, const std::optional<Tensor>& scale,
                                                double epsilon) {
  return withPythonErrors([&] {
    const Operands operands = operandsOf(op, collective, input, weight, group);
    Norm norm = normOf(op, operands, residual, normWeight, epsilon);
    const auto [quantised, scales] =
        makeQuantisedRows(op, norm.call, operands.input, operands.shape, quantisation, scale);
    run(collective, operands, {.norm = &norm.call});
    return std::tuple(quantised, scales, norm.newResidual);
  });
}

}  // namespace

Tensor gemmAllReduce(const Tensor& input, const Tensor& weight, const std::string& group) {
  return run("gemm_all_reduce", GemmCollective::AllReduce, input, weight, group);
}
Tensor gemmReduceScatter(const Tensor& input, const Tensor& weight, const std::string& group) {
  return run("gemm_reduce_scatter", GemmCollective::ReduceScatter, input, weight, group);
}
Tensor allGatherGemm(const Tensor& input, const Tensor& weight, const std::string& group) {
  return run("all_gather_gemm", GemmCollective::AllGather, input, weight, group);
}
std::tuple<Tensor, Tensor> gemmAllReduceRmsNorm(const Tensor& input, const Tensor& weight,
                                                const std::optional<Tensor>& residual, const Tensor& normWeight,
                                                const std::string& group, double epsilon) {
  return runNorm("gemm_all_reduce_rms_norm", GemmCollective::AllReduce, input, weight, residual, normWeight, group,
                 epsilon);
}
std::tuple<Tensor, Tensor> gemmReduceScatterRmsNorm(const Tensor& input, const Tensor& weight,
                                                    const std::optional<Tensor>& residual, const Tensor& normWeight,
                                                    const std::string& group, double epsilon) {
  return runNorm("gemm_reduce_scatter_rms_norm", GemmCollective::ReduceScatter, input, weight, residual, normWeight,
                 group, epsilon);
}
std::tuple<Tensor, Tensor, Tensor> gemmAllReduceRmsNormQuantised(const Tensor& input, const Tensor& weight,
                                                                 const std::optional<Tensor>& residual,
                                                                 const Tensor& normWeight, const std::string& group,
                                                                 const std::string& quantisation,
                                                                 const std::optional<Tensor>& scale, double epsilon) {
  return runQuantised("gemm_all_reduce_rms_norm_quantised", GemmCollective::AllReduce, input, weight, residual,
                      normWeight, group, quantisation, scale, epsilon);
}
std::tuple<Tensor, Tensor, Tensor> gemmReduceScatterRmsNormQuantised(
    const Tensor& input, const Tensor& weight, const std::optional<Tensor>& residual, const Tensor& normWeight,
    const std::string& group, const std::string& quantisation, const std::optional<Tensor>& scale, double epsilon) {
  return runQuantised("gemm_reduce_scatter_rms_norm_quantised", GemmCollective::ReduceScatter, input, weight, residual,
                      normWeight, group, quantisation, scale, epsilon);
}

}  // namespace mscclpp::python::ops
