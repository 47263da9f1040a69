#include "collectives.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "python_error.hpp"

namespace mscclpp::python::ops {

namespace {

using Shape = std::vector<std::int64_t>;

Shape copyOf(std::span<const std::int64_t> shape) {
  return {shape.begin(), shape.end()};
}

Shape gatheredShape(const Tensor& tensor, const NamedGroup& group) {
  const std::span<const std::int64_t> part = shapeOf(tensor);
  Shape shape(std::max<std::size_t>(part.size(), 1), 1);
  std::copy(part.begin(), part.end(), shape.begin());
  shape[0] *= static_cast<std::int64_t>(group.ranks());
  return shape;
}

// The shape of one rank's part of a tensor that has one for each rank.
Shape partShape(const char* op, const Tensor& tensor, const NamedGroup& group) {
  Shape shape = copyOf(shapeOf(tensor));
  const auto ranks = static_cast<std::int64_t>(group.ranks());
  if (shape.empty() || shape[0] % ranks != 0) throwIndivisible(op, tensor, group);
  shape[0] /= ranks;
  return shape;
}

ReduceOp toReduceOp(const char* op, const std::string& name) {
  for (const ReduceOp each : {ReduceOp::SUM, ReduceOp::AVG, ReduceOp::MAX, ReduceOp::MIN, ReduceOp::PROD}) {
    if (name == nameOf(each)) return each;
  }
  throwInvalid(op, "unknown operator '" + name + "': use 'sum', 'prod', 'max', 'min' or 'avg'");
}

// Runs a call that has its collective, count and operator or root.
void run(NamedGroup& group, const Tensor& input, const Tensor& output, CollectiveCall call) {
  call.input = input.data_ptr();
  call.output = output.data_ptr();
  withCollectives(group, input, [&](Collectives& collectives, CUstream_st* stream) {
    call.stream = stream;
    collectives.run(call);
  });
}

void requireOutput(const char* op, const Tensor& out, const Tensor& tensor, std::span<const std::int64_t> shape) {
  requireContiguous(op, "out", out);
  requireAlike(op, "out", out, "tensor", tensor);
  const auto given = shapeOf(out);
  if (given.size() == shape.size() && std::equal(shape.begin(), shape.end(), given.begin())) return;
  throwInvalid(op, "out has shape " + toString(given) + ", but the result has shape " + toString(shape));
}

// Each collective once: `output` makes the tensor of the result from its shape, or checks the one that is given.
template <class Output>
Tensor reduceAll(const char* name, const Tensor& tensor, const std::string& group, const std::string& op,
                 const Output& output) {
  return withPythonErrors([&] {
    const auto named = findGroup(group);
    const Tensor result = output(shapeOf(tensor));
    run(*named, tensor, result,
        {.count = countOf(tensor), .type = typeOf(name, tensor), .reduction = toReduceOp(name, op)});
    return result;
  });
}

void sumInFp8(const char* name, const Tensor& input, const Tensor& output, const std::string& group) {
  const DataType type = typeOf(name, input);
  withCollectives(*findGroup(group), input, [&](Collectives& collectives, CUstream_st* stream) {
    collectives.allReduceFp8(input.data_ptr(), output.data_ptr(), countOf(input), type, stream);
  });
}

template <class Output>
Tensor gatherAll(const char* name, const Tensor& given, const std::string& group, const Output& output) {
  return withPythonErrors([&] {
    const auto named = findGroup(group);
    const Tensor tensor = toContiguous(given);
    const Tensor result = output(gatheredShape(tensor, *named));
    run(*named, tensor, result,
        {.collective = CollectiveType::AllGather, .count = countOf(tensor), .type = typeOf(name, tensor)});
    return result;
  });
}

template <class Output>
Tensor reduceAndScatter(const char* name, const Tensor& given, const std::string& group, const std::string& op,
                        const Output& output) {
  return withPythonErrors([&] {
    const auto named = findGroup(group);
    const Tensor tensor = toContiguous(given);
    const Tensor result = output(partShape(name, tensor, *named));
    run(*named, tensor, result,
        {.collective = CollectiveType::ReduceScatter,
         .count = countOf(result),
         .type = typeOf(name, tensor),
         .reduction = toReduceOp(name, op)});
    return result;
  });
}

template <class Output>
Tensor exchangeAll(const char* name, const Tensor& given, const std::string& group, const Output& output) {
  return withPythonErrors([&] {
    const auto named = findGroup(group);
    const Tensor tensor = toContiguous(given);
    partShape(name, tensor, *named);
    const Tensor result = output(shapeOf(tensor));
    run(*named, tensor, result,
        {.collective = CollectiveType::AllToAll,
         .count = countOf(tensor) / named->ranks(),
         .type = typeOf(name, tensor)});
    return result;
  });
}

template <class Output>
Tensor broadcastTo(const char* name, const Tensor& tensor, const std::string& group, std::int64_t root,
                   const Output& output) {
  return withPythonErrors([&] {
    const auto named = findGroup(group);
    const Tensor result = output(shapeOf(tensor));
    if (root < 0 || root >= static_cast<std::int64_t>(named->ranks())) {
      throwInvalid(
          name, "root is " + std::to_string(root) + ", but the ranks are 0 to " + std::to_string(named->ranks() - 1));
    }
    run(*named, tensor, result,
        {.collective = CollectiveType::Broadcast,
         .count = countOf(tensor),
         .type = typeOf(name, tensor),
         .root = static_cast<int>(root)});
    return result;
  });
}

auto newLike(const Tensor& tensor) {
  return [&](std::span<const std::int64_t> shape) { return makeLike(tensor, shape); };
}
auto inPlace(const char* name, const Tensor& tensor) {
  return [&tensor, name](std::span<const std::int64_t>) {
    requireContiguous(name, "tensor", tensor);
    return tensor;
  };
}
auto into(const char* name, const Tensor& out, const Tensor& tensor) {
  return [&, name](std::span<const std::int64_t> shape) {
    requireOutput(name, out, tensor, shape);
    return out;
  };
}

}  // namespace

void throwIndivisible(const char* op, const Tensor& tensor, const NamedGroup& group) {
  throwInvalid(op, "the first dimension of shape " + toString(shapeOf(tensor)) + " is not divisible by the " +
                       std::to_string(group.ranks()) + " ranks, which have parts of one size");
}

Tensor allReduce(const Tensor& tensor, const std::string& group, const std::string& op) {
  const Tensor source = toContiguous(tensor);
  return reduceAll("all_reduce", source, group, op, newLike(source));
}
void allReduceInPlace(const Tensor& tensor, const std::string& group, const std::string& op) {
  reduceAll("all_reduce_", tensor, group, op, inPlace("all_reduce_", tensor));
}

Tensor allGather(const Tensor& tensor, const std::string& group) {
  return gatherAll("all_gather", tensor, group, newLike(tensor));
}
void allGatherInto(const Tensor& out, const Tensor& tensor, const std::string& group) {
  gatherAll("all_gather_into", tensor, group, into("all_gather_into", out, tensor));
}

Tensor reduceScatter(const Tensor& tensor, const std::string& group, const std::string& op) {
  return reduceAndScatter("reduce_scatter", tensor, group, op, newLike(tensor));
}
void reduceScatterInto(const Tensor& out, const Tensor& tensor, const std::string& group, const std::string& op) {
  reduceAndScatter("reduce_scatter_into", tensor, group, op, into("reduce_scatter_into", out, tensor));
}

Tensor allToAll(const Tensor& tensor, const std::string& group) {
  return exchangeAll("all_to_all", tensor, group, newLike(tensor));
}
void allToAllInto(const Tensor& out, const Tensor& tensor, const std::string& group) {
  exchangeAll("all_to_all_into", tensor, group, into("all_to_all_into", out, tensor));
}

Tensor broadcast(const Tensor& tensor, const std::string& group, std::int64_t root) {
  const Tensor source = toContiguous(tensor);
  return broadcastTo("broadcast", source, group, root, newLike(source));
}
void broadcastInPlace(const Tensor& tensor, const std::string& group, std::int64_t root) {
  broadcastTo("broadcast_", tensor, group, root, inPlace("broadcast_", tensor));
}

Tensor allReduceFp8(const Tensor& given, const std::string& group) {
  return withPythonErrors([&] {
    const Tensor tensor = toContiguous(given);
    const Tensor result = makeLike(tensor, shapeOf(tensor));
    sumInFp8("all_reduce_fp8", tensor, result, group);
    return result;
  });
}
void allReduceFp8InPlace(const Tensor& tensor, const std::string& group) {
  withPythonErrors([&] {
    const char* const op = "all_reduce_fp8_";
    requireContiguous(op, "tensor", tensor);
    sumInFp8(op, tensor, tensor, group);
  });
}

}  // namespace mscclpp::python::ops
