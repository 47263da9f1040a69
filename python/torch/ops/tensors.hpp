// What the operators need to know of tensors, through the stable ABI of PyTorch.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstddef>
#include <span>
#include <string>

#include "mscclpp/basic/data_type.hpp"

struct CUstream_st;

namespace mscclpp::python {

using torch::stable::Tensor;

/// Throws Error(InvalidUsage): "<op>: <why>".
[[noreturn]] void throwInvalid(const char* op, const std::string& why);

/// The element type. Throws Error(InvalidUsage) for one that the collectives do not support.
DataType typeOf(const char* op, const Tensor& tensor);

/// The sizes of the dimensions.
std::span<const std::int64_t> shapeOf(const Tensor& tensor);
/// Such as "(2, 3)".
std::string toString(std::span<const std::int64_t> shape);
inline std::size_t countOf(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel());
}

/// The tensor if its elements are contiguous, else a contiguous copy.
Tensor toContiguous(const Tensor& tensor);
/// Throws Error(InvalidUsage) unless the elements of a tensor that is written are contiguous.
void requireContiguous(const char* op, const char* name, const Tensor& tensor);
/// Throws Error(InvalidUsage) unless both are on the same device.
void requireSameDevice(const char* op, const char* name, const Tensor& tensor, const char* otherName,
                       const Tensor& other);
/// The same, and unless both have the same element type.
void requireAlike(const char* op, const char* name, const Tensor& tensor, const char* otherName, const Tensor& other);

/// A new tensor of the same type, on the same device.
Tensor makeLike(const Tensor& tensor, std::span<const std::int64_t> shape);
/// The same of another type, for which typeOf() is `type`.
Tensor makeLike(const Tensor& tensor, std::span<const std::int64_t> shape, DataType type);

/// The current stream of PyTorch on a GPU.
CUstream_st* currentStream(int device);

}  // namespace mscclpp::python
