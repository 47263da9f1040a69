#include "tensors.hpp"

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::torch_c10d {

void throwWrong(const Operation& operation, const std::string& why) {
  throw Error(std::string(operation.name) + ": " + why, ErrorCode::InvalidUsage);
}

void requireTensor(const Operation& operation, const at::Tensor& tensor) {
  if (tensor.device() != operation.device) {
    throwWrong(operation, "a tensor is on " + tensor.device().str() + " and another one on " + operation.device.str() +
                              ": all are on one device");
  }
  if (tensor.layout() != at::kStrided) throwWrong(operation, "a tensor is sparse: pass dense ones");
  if (!tensor.is_contiguous(tensor.suggest_memory_format())) {
    throwWrong(operation, "a tensor is not contiguous: pass .contiguous()");
  }
}

void requireTensors(const Operation& operation, const std::vector<at::Tensor>& tensors, std::size_t count) {
  if (tensors.size() != count) {
    throwWrong(operation,
               "there are " + std::to_string(tensors.size()) + " tensors, it takes " + std::to_string(count));
  }
  for (const at::Tensor& tensor : tensors) requireTensor(operation, tensor);
}

void requireElements(const Operation& operation, const at::Tensor& larger, const at::Tensor& smaller, int times) {
  if (larger.scalar_type() != smaller.scalar_type()) {
    throwWrong(operation, std::string("input and output have different types, ") + c10::toString(larger.scalar_type()) +
                              " and " + c10::toString(smaller.scalar_type()));
  }
  if (larger.numel() != smaller.numel() * times) {
    throwWrong(operation, "one tensor has " + std::to_string(larger.numel()) + " elements, and not " +
                              std::to_string(times) + " times the " + std::to_string(smaller.numel()) +
                              " of the other one");
  }
}

DataType toDataType(const Operation& operation, const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kBool:
    case at::kByte:
      return DataType::UINT8;
    case at::kChar:
      return DataType::INT8;
    case at::kShort:
      return DataType::INT16;
    case at::kUInt16:
      return DataType::UINT16;
    case at::kInt:
      return DataType::INT32;
    case at::kUInt32:
      return DataType::UINT32;
    case at::kLong:
      return DataType::INT64;
    case at::kUInt64:
      return DataType::UINT64;
    case at::kHalf:
      return DataType::FLOAT16;
    case at::kBFloat16:
      return DataType::BFLOAT16;
    case at::kFloat:
      return DataType::FLOAT32;
    case at::kDouble:
      return DataType::FLOAT64;
    case at::kFloat8_e4m3fn:
      return DataType::FLOAT8_E4M3FN;
    case at::kFloat8_e5m2:
      return DataType::FLOAT8_E5M2;
    default:
      throwWrong(operation, std::string("there is no reduction of type ") + c10::toString(tensor.scalar_type()) +
                                ": convert the tensor, or pass torch.view_as_real() of a complex one");
  }
}

namespace {

ReduceOp toOperator(const Operation& operation, c10d::ReduceOp::RedOpType op, bool isBool) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return isBool ? ReduceOp::MAX : ReduceOp::SUM;
    case c10d::ReduceOp::PRODUCT:
      return isBool ? ReduceOp::MIN : ReduceOp::PROD;
    case c10d::ReduceOp::MIN:
      return ReduceOp::MIN;
    case c10d::ReduceOp::MAX:
      return ReduceOp::MAX;
    case c10d::ReduceOp::AVG:
      if (isBool) throwWrong(operation, "there is no average of booleans: convert the tensor");
      return ReduceOp::AVG;
    case c10d::ReduceOp::PREMUL_SUM:
      if (isBool) throwWrong(operation, "booleans take no factor: convert the tensor");
      return ReduceOp::SUM;
    default:
      throwWrong(operation, "the operator is not supported: use SUM, AVG, PRODUCT, MIN, MAX or PREMUL_SUM");
  }
}

}  // namespace

Reduction toReduction(Operation& operation, const c10d::ReduceOp& op, const at::Tensor& tensor) {
  Reduction reduction = toOperator(operation, op.op_, tensor.scalar_type() == at::kBool);
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return reduction;
  const auto* supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (supplement == nullptr) throwWrong(operation, "PREMUL_SUM has no factor");
  at::Tensor factor = supplement->tensor_factor;
  if (!factor.defined()) factor = at::full({1}, supplement->double_factor, at::device(at::kCPU));
  const bool isOnHost = factor.is_cpu();
  if (!isOnHost && factor.device() != tensor.device()) {
    throwWrong(operation, "the factor of PREMUL_SUM is on another device than the tensor");
  }
  factor = factor.to(tensor.scalar_type());
  reduction.factor = factor.data_ptr();
  reduction.factorLocation = isOnHost ? ScalarLocation::Host : ScalarLocation::Device;
  operation.kept.push_back(std::move(factor));
  return reduction;
}

std::vector<Part> partsOf(const Operation& operation, const at::Tensor& tensor, const std::vector<std::int64_t>& splits,
                          int ranks) {
  const auto wanted = static_cast<std::size_t>(ranks);
  const std::int64_t rows = tensor.dim() == 0 ? tensor.numel() : tensor.size(0);
  std::vector<std::int64_t> counts = splits;
  if (counts.empty()) {
    if (rows % ranks != 0) {
      throwWrong(operation, "the first dimension is " + std::to_string(rows) + ", which " + std::to_string(ranks) +
                                " ranks do not divide: pass split sizes");
    }
    counts.assign(wanted, rows / ranks);
  }
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) {
    if (count < 0) throwWrong(operation, "a split size is negative");
    sum += count;
  }
  if (counts.size() != wanted || sum != rows) {
    throwWrong(operation, "there are " + std::to_string(counts.size()) + " split sizes, whose sum is " +
                              std::to_string(sum) + ": it takes " + std::to_string(ranks) + " whose sum is " +
                              std::to_string(rows));
  }
  const std::size_t rowBytes = rows == 0 ? 0 : tensor.nbytes() / static_cast<std::size_t>(rows);
  std::vector<Part> parts;
  std::size_t offset = 0;
  for (const std::int64_t count : counts) {
    const std::size_t bytes = static_cast<std::size_t>(count) * rowBytes;
    parts.push_back({offset, bytes});
    offset += bytes;
  }
  return parts;
}

}  // namespace mscclpp::torch_c10d
