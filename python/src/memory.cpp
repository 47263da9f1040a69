// Memory that peers can map, and its hand-over to other libraries by DLPack.
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>

#include "gpu_support.hpp"
#include "module.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"

namespace mscclpp::python {

namespace {

struct NamedType {
  const char* name;
  std::uint8_t code;  // of DLPack
  std::uint8_t bits;
};
constexpr std::array<NamedType, 15> namedTypes{{{"int8", 0, 8},
                                                {"int16", 0, 16},
                                                {"int32", 0, 32},
                                                {"int64", 0, 64},
                                                {"uint8", 1, 8},
                                                {"uint16", 1, 16},
                                                {"uint32", 1, 32},
                                                {"uint64", 1, 64},
                                                {"float16", 2, 16},
                                                {"float32", 2, 32},
                                                {"float64", 2, 64},
                                                {"bfloat16", 4, 16},
                                                {"bool", 6, 8},
                                                {"float8_e4m3fn", 10, 8},
                                                {"float8_e5m2", 12, 8}}};

[[noreturn]] void throwWrong(const std::string& sentence) {
  throw Error(sentence, ErrorCode::InvalidUsage);
}

nb::dlpack::dtype toDlpackType(std::string name) {
  const auto dot = name.find('.');
  if (dot != std::string::npos) name.erase(0, dot + 1);
  for (const NamedType& type : namedTypes) {
    if (name == type.name) return {type.code, type.bits, 1};
  }
  throwWrong("to_dlpack: unknown data_type '" + name + "': use a name such as 'float16' or 'torch.float16'");
}

struct Memory {
  void* data;
  std::size_t bytes;
  int deviceType;  // of DLPack
  int deviceId;
};

using Extents = std::vector<std::int64_t>;

// Rows one after another.
Extents contiguousStrides(const Extents& shape) {
  Extents strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) {
    if (__builtin_mul_overflow(strides[i], shape[i], &strides[i - 1])) throwWrong("to_dlpack: the shape is too large");
  }
  return strides;
}

// `owner` lives as long as the array.
nb::ndarray<nb::array_api> toArray(const Memory& memory, nb::handle owner, const std::string& typeName, Extents shape,
                                   Extents strides) {
  const nb::dlpack::dtype type = toDlpackType(typeName);
  const std::size_t elements = memory.bytes / (type.bits / 8U);
  if (shape.empty()) shape = {static_cast<std::int64_t>(elements)};
  if (strides.empty()) strides = contiguousStrides(shape);
  if (strides.size() != shape.size()) throwWrong("to_dlpack: as many strides as dimensions are needed");
  // The index of the last element; a division keeps large values from overflowing.
  std::size_t last = 0;
  bool isEmpty = false;
  std::vector<std::size_t> extents;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0 || strides[i] < 0) throwWrong("to_dlpack: shape and strides are not negative");
    extents.push_back(static_cast<std::size_t>(shape[i]));
    if (shape[i] == 0) isEmpty = true;
    if (shape[i] <= 1) continue;
    const auto steps = static_cast<std::size_t>(shape[i] - 1), stride = static_cast<std::size_t>(strides[i]);
    if (stride > elements / steps) throwWrong("to_dlpack: the shape exceeds the buffer");
    last += steps * stride;
  }
  if (!isEmpty && last >= elements) {
    throwWrong("to_dlpack: the shape needs " + std::to_string(last + 1) + " elements, the buffer has " +
               std::to_string(elements));
  }
  return {memory.data, extents.size(), extents.data(), owner, strides.data(), type, memory.deviceType, memory.deviceId};
}

struct RawGpuBuffer {
  std::size_t elements;
  GpuAllocation allocation;
};

constexpr const char* toDlpackDoc =
    "The memory as an array: an object for from_dlpack() of torch, cupy, numpy or jax, which keeps this buffer alive. "
    "data_type: 'torch.float16' or 'float16'; shape: by default all elements; strides: in elements. Raises "
    "InvalidUsage if they do not fit the buffer.";

// What mscclpp.arrays needs to know of a foreign array.
nb::tuple describeDlpack(const nb::ndarray<nb::ro>& array) {
  const nb::dlpack::dtype type = array.dtype();
  std::string name = "bits" + std::to_string(type.bits);
  for (const NamedType& known : namedTypes) {
    if (known.code == type.code && known.bits == type.bits && type.lanes == 1) name = known.name;
  }
  nb::list shape, strides;
  for (std::size_t i = 0; i < array.ndim(); ++i) {
    shape.append(array.shape(i));
    strides.append(array.stride(i));
  }
  return nb::make_tuple(toAddress(array.data()), nb::tuple(shape), nb::tuple(strides), name, array.device_type(),
                        array.device_id());
}

// In a third of the time that numpy's __array_interface__ takes.
std::uintptr_t bufferAddress(nb::handle array) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_STRIDES) != 0) nb::raise_python_error();
  const std::uintptr_t address = toAddress(buffer.buf);
  PyBuffer_Release(&buffer);
  return address;
}

}  // namespace

void bindMemory(nb::module_& module) {
  nb::class_<HostBuffer>(module, "HostBuffer",
                         "Zero-filled host memory that other processes can map; CPU ranks communicate through it.")
      .def(nb::init<std::size_t, const std::string&>(), "bytes"_a, "name"_a = "mscclpp")
      .def(
          "data", [](const HostBuffer& self) { return toAddress(self.data()); }, "The address; 0 if empty.")
      .def("bytes", &HostBuffer::bytes)
      .def(
          "to_dlpack",
          [](nb::handle_t<HostBuffer> self, const std::string& type, Extents shape, Extents strides) {
            const auto& buffer = nb::cast<const HostBuffer&>(self);
            return toArray({buffer.data(), buffer.bytes(), nb::device::cpu::value, 0}, self, type, std::move(shape),
                           std::move(strides));
          },
          "data_type"_a = "uint8", "shape"_a = Extents{}, "strides"_a = Extents{}, toDlpackDoc);
  nb::enum_<GpuBufferGranularity>(module, "GpuBufferGranularity", "What a size is rounded up to, for multicast.")
      .value("MultiCastMinimum", GpuBufferGranularity::MultiCastMinimum)
      .value("MultiCastRecommended", GpuBufferGranularity::MultiCastRecommended);
  nb::class_<RawGpuBuffer>(module, "RawGpuBuffer",
                           "Zero-filled memory of the current GPU that peers can map: `nelems` bytes. Raises "
                           "InvalidUsage in a build without CUDA, and CudaError or CuError if there is not enough.")
      .def(nb::new_([](std::size_t elements, GpuBufferGranularity granularity) {
             return makeShared<RawGpuBuffer>(RawGpuBuffer{elements, allocateGpuMemory(elements, granularity)});
           }),
           "nelems"_a, "granularity"_a = GpuBufferGranularity::MultiCastMinimum, Unlocked())
      .def(
          "nelems", [](const RawGpuBuffer& self) { return self.elements; }, "As requested.")
      .def(
          "bytes", [](const RawGpuBuffer& self) { return self.allocation.bytes; }, "As allocated: at least nelems().")
      .def("data", [](const RawGpuBuffer& self) { return toAddress(self.allocation.memory.get()); })
      .def("device_id", [](const RawGpuBuffer& self) { return self.allocation.deviceId; })
      .def(
          "to_dlpack",
          [](nb::handle_t<RawGpuBuffer> self, const std::string& type, Extents shape, Extents strides) {
            const auto& [elements, allocation] = nb::cast<const RawGpuBuffer&>(self);
            return toArray({allocation.memory.get(), elements, nb::device::cuda::value, allocation.deviceId}, self,
                           type, std::move(shape), std::move(strides));
          },
          "data_type"_a = "uint8", "shape"_a = Extents{}, "strides"_a = Extents{}, toDlpackDoc);
  module.def("buffer_address", &bufferAddress, "array"_a,
             "The address of an object with Python's buffer protocol, such as a numpy array.");
  module.def("describe_dlpack", &describeDlpack, "array"_a,
             "(address, shape, strides in elements, name of the type, device type of DLPack, device id).");
}

}  // namespace mscclpp::python
