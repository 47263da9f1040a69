// The compiled all-reduces that send fp8: scratch, and the kernels of a backend for an element type.
#pragma once

#include <cstddef>
#include <memory>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/fusion/all_reduce_fp8.hpp"
#include "mscclpp/host/communicator/collective_state.hpp"
#include "mscclpp/host/communicator/communicator.hpp"

struct CUstream_st;

namespace mscclpp::kernels {

struct Fp8Call {
  const void* input;
  void* output;
  std::size_t count;
  CUstream_st* stream;
};

/// The kernel for an element type, with its scratch on all ranks.
class Fp8Kernels {
 public:
  Fp8Kernels() = default;
  Fp8Kernels(const Fp8Kernels&) = delete;
  Fp8Kernels& operator=(const Fp8Kernels&) = delete;
  virtual ~Fp8Kernels() = default;

  /// The elements for which there is scratch: a multiple of those that share a scale.
  virtual std::size_t capacity() const = 0;
  /// The memory that was allocated on this rank.
  virtual std::size_t memoryBytes() const = 0;
  /// Runs the call (CPU) or enqueues it (GPU), which has at most capacity() elements. Returns 0 or a cudaError_t.
  virtual int run(const Fp8Call& call, int maxBlocks, KernelStart start) const = 0;
};

/// The same for elements T and a backend, which has the DeviceType `where`, the bytes `capacity`, and, for a collective
/// C, template <class C> static int run(state, call, maxBlocks, start).
template <class T, class Backend>
class Fp8KernelsOf : public Fp8Kernels {
 public:
  /// Called by all ranks.
  Fp8KernelsOf(Communicator& communicator, const std::shared_ptr<WaitMonitor>& monitor)
      : state_(communicator, Backend::where, elements, PipelineShape{}, monitor) {}

  std::size_t capacity() const override { return elements; }
  std::size_t memoryBytes() const override { return state_.memoryBytes(); }
  int run(const Fp8Call& call, int maxBlocks, KernelStart start) const override {
    return Backend::run(state_, call, maxBlocks, start);
  }

 private:
  static constexpr std::size_t elements = Backend::capacity / sizeof(T);
  static_assert(elements % quantisationGroup == 0);
  CollectiveState<AllReduceFp8<T, AllReduceFp8Config{}>> state_;
};

/// Throws Error(InvalidUsage) for wrong arguments; returns whether there is anything to do.
bool requireValid(const Fp8Call& call, DataType type);

// Of each backend: the kernels for elements T. Called by all ranks.
namespace gpu {
template <class T>
std::unique_ptr<Fp8Kernels> makeAllReduceFp8(Communicator& communicator, const std::shared_ptr<WaitMonitor>& monitor);
}  // namespace gpu
namespace cpu {
template <class T>
std::unique_ptr<Fp8Kernels> makeAllReduceFp8(Communicator& communicator, const std::shared_ptr<WaitMonitor>& monitor);
}  // namespace cpu

}  // namespace mscclpp::kernels
