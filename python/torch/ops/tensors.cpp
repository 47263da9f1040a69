#include "tensors.hpp"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <array>
#include <vector>

#include "mscclpp/host/base/error.hpp"

// In libtorch_cuda, which a PyTorch without CUDA does not have.
extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(std::int32_t device, void** stream) __attribute__((weak));

namespace mscclpp::python {

namespace {

std::int32_t codeOf(const Tensor& tensor) {
  std::int32_t code = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &code));
  return code;
}

struct KnownType {
  std::int32_t code;  // of PyTorch
  DataType type;
};

const std::array<KnownType, 14>& knownTypes() {
  static const std::array<KnownType, 14> types{{{aoti_torch_dtype_float32(), DataType::FLOAT32},
                                                {aoti_torch_dtype_bfloat16(), DataType::BFLOAT16},
                                                {aoti_torch_dtype_float16(), DataType::FLOAT16},
                                                {aoti_torch_dtype_float64(), DataType::FLOAT64},
                                                {aoti_torch_dtype_int8(), DataType::INT8},
                                                {aoti_torch_dtype_int16(), DataType::INT16},
                                                {aoti_torch_dtype_int32(), DataType::INT32},
                                                {aoti_torch_dtype_int64(), DataType::INT64},
                                                {aoti_torch_dtype_uint8(), DataType::UINT8},
                                                {aoti_torch_dtype_uint16(), DataType::UINT16},
                                                {aoti_torch_dtype_uint32(), DataType::UINT32},
                                                {aoti_torch_dtype_uint64(), DataType::UINT64},
                                                {aoti_torch_dtype_float8_e4m3fn(), DataType::FLOAT8_E4M3FN},
                                                {aoti_torch_dtype_float8_e5m2(), DataType::FLOAT8_E5M2}}};
  return types;
}

}  // namespace

void throwInvalid(const char* op, const std::string& why) {
  throw Error(std::string(op) + ": " + why, ErrorCode::InvalidUsage);
}

DataType typeOf(const char* op, const Tensor& tensor) {
  const std::int32_t code = codeOf(tensor);
  for (const KnownType& known : knownTypes()) {
    if (known.code == code) return known.type;
  }
  throwInvalid(op,
               "the element type is not supported: convert the tensor to an integer type, float16, bfloat16, float32, "
               "float64, float8_e4m3fn or float8_e5m2");
}

std::span<const std::int64_t> shapeOf(const Tensor& tensor) {
  const auto sizes = tensor.sizes();
  return {sizes.data(), sizes.size()};
}

std::string toString(std::span<const std::int64_t> shape) {
  std::string text = "(";
  for (const std::int64_t extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + (shape.size() == 1 ? ",)" : ")");
}

Tensor toContiguous(const Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : torch::stable::contiguous(tensor);
}

void requireContiguous(const char* op, const char* name, const Tensor& tensor) {
  if (!tensor.is_contiguous()) {
    throwInvalid(op, std::string(name) + " is not contiguous, and it is written: pass a contiguous tensor");
  }
}

void requireSameDevice(const char* op, const char* name, const Tensor& tensor, const char* otherName,
                       const Tensor& other) {
  if (tensor.is_cpu() != other.is_cpu() || tensor.get_device_index() != other.get_device_index()) {
    throwInvalid(op, std::string(name) + " and " + otherName + " are on different devices: move one");
  }
}

void requireAlike(const char* op, const char* name, const Tensor& tensor, const char* otherName, const Tensor& other) {
  if (codeOf(tensor) != codeOf(other)) {
    throwInvalid(op, std::string(name) + " and " + otherName + " have different element types: convert one");
  }
  requireSameDevice(op, name, tensor, otherName, other);
}

namespace {

Tensor makeOn(const Tensor& tensor, std::span<const std::int64_t> shape, std::int32_t code) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t next = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = next;
    next *= std::max<std::int64_t>(shape[i], 1);
  }
  std::int32_t deviceType = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &deviceType));
  AtenTensorHandle made = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(static_cast<std::int64_t>(shape.size()), shape.data(), strides.data(),
                                                  code, deviceType, tensor.get_device_index(), &made));
  return Tensor(made);
}

}  // namespace

Tensor makeLike(const Tensor& tensor, std::span<const std::int64_t> shape) {
  return makeOn(tensor, shape, codeOf(tensor));
}

Tensor makeLike(const Tensor& tensor, std::span<const std::int64_t> shape, DataType type) {
  const auto& types = knownTypes();
  return makeOn(tensor, shape, std::ranges::find(types, type, &KnownType::type)->code);
}

CUstream_st* currentStream(int device) {
  void* stream = nullptr;
  if (aoti_torch_get_current_cuda_stream == nullptr) {
    throw Error("this PyTorch has no CUDA: install one that has, or move the tensor to the CPU",
                ErrorCode::InvalidUsage);
  }
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  return static_cast<CUstream_st*>(stream);
}

}  // namespace mscclpp::python
