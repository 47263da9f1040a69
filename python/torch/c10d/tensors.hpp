// Tensors and operators of PyTorch in this library's terms, checked.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "operation.hpp"

namespace mscclpp::torch_c10d {

[[noreturn]] void throwWrong(const Operation& operation, const std::string& why);

/// Throws Error(InvalidUsage) unless the tensor is dense, contiguous in its memory format, and on the operation's
/// device. As PyTorch's own backends, which move the memory as it is.
void requireTensor(const Operation& operation, const at::Tensor& tensor);
/// The same for each, and for the number of them.
void requireTensors(const Operation& operation, const std::vector<at::Tensor>& tensors, std::size_t count);
/// Throws Error(InvalidUsage) unless the two have the same element type, and one `times` as many elements.
void requireElements(const Operation& operation, const at::Tensor& larger, const at::Tensor& smaller, int times);

/// The type of elements that are reduced. Throws Error(InvalidUsage) if there is no reduction of it.
DataType toDataType(const Operation& operation, const at::Tensor& tensor);
/// The reduction of such a tensor. A factor is kept in the operation. Booleans are 0 or 1: their sum is a maximum.
Reduction toReduction(Operation& operation, const c10d::ReduceOp& op, const at::Tensor& tensor);

/// The rank's `rows` of the first dimension, and where they begin, in bytes; even parts if there are no `splits`.
struct Part {
  std::size_t offset;
  std::size_t bytes;
};
std::vector<Part> partsOf(const Operation& operation, const at::Tensor& tensor, const std::vector<std::int64_t>& splits,
                          int ranks);

}  // namespace mscclpp::torch_c10d
