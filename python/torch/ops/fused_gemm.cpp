#include "fused_gemm.hpp"

#include <vector>

#include "python_error.hpp"

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

Tensor run(const char* op, GemmCollective collective, const Tensor& givenInput, const Tensor& givenWeight,
           const std::string& group) {
  return withPythonErrors([&] {
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
    const Tensor output = makeLike(input, shape);
    onDeviceOf(input, [&](std::optional<int> gpu, CUstream_st* stream) {
      named->gemms(gpu).run(collective, {.input = input.data_ptr(),
                                         .weight = weight.data_ptr(),
                                         .output = output.data_ptr(),
                                         .rows = rows,
                                         .stream = stream,
                                         .width = static_cast<std::size_t>(shape.back()),
                                         .depth = static_cast<std::size_t>(inputShape.back())});
    });
    return output;
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

}  // namespace mscclpp::python::ops
