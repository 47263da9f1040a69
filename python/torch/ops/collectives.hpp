// The operators that are collectives. Shapes are those of docs/python.md; `group` is a name that is registered. Called
// by all ranks, in the same order. On GPUs they enqueue on the current stream; on CPU ranks they return when done.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "python/src/named_groups.hpp"
#include "tensors.hpp"

namespace mscclpp::python::ops {

// Into a new tensor. A tensor that is not contiguous is copied first.
Tensor allReduce(const Tensor& tensor, const std::string& group, const std::string& op);
Tensor allGather(const Tensor& tensor, const std::string& group);
Tensor reduceScatter(const Tensor& tensor, const std::string& group, const std::string& op);
Tensor allToAll(const Tensor& tensor, const std::string& group);
Tensor broadcast(const Tensor& tensor, const std::string& group, std::int64_t root);

// A sum that is sent as fp8, of float32, float16 or bfloat16: Collectives::allReduceFp8.
Tensor allReduceFp8(const Tensor& tensor, const std::string& group);
void allReduceFp8InPlace(const Tensor& tensor, const std::string& group);

// Into a tensor that is given, which is contiguous.
void allReduceInPlace(const Tensor& tensor, const std::string& group, const std::string& op);
void allGatherInto(const Tensor& out, const Tensor& tensor, const std::string& group);
void reduceScatterInto(const Tensor& out, const Tensor& tensor, const std::string& group, const std::string& op);
void allToAllInto(const Tensor& out, const Tensor& tensor, const std::string& group);
void broadcastInPlace(const Tensor& tensor, const std::string& group, std::int64_t root);

/// Throws Error(InvalidUsage): the first dimension of the tensor is no multiple of the ranks.
[[noreturn]] void throwIndivisible(const char* op, const Tensor& tensor, const NamedGroup& group);

/// Calls f(gpu, stream) with what finds the objects of a NamedGroup for the tensor, whose GPU is the current one
/// meanwhile, and its current stream; nothing and null for a CPU.
template <class F>
void onDeviceOf(const Tensor& tensor, const F& f) {
  if (tensor.is_cpu()) return f(std::optional<int>(), nullptr);
  const int device = tensor.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  f(std::optional(device), currentStream(device));
}

/// Calls f(collectives, stream) with those of a group for the tensor.
template <class F>
void withCollectives(NamedGroup& group, const Tensor& tensor, const F& f) {
  onDeviceOf(tensor, [&](std::optional<int> gpu, CUstream_st* stream) { f(group.collectives(gpu), stream); });
}

}  // namespace mscclpp::python::ops
