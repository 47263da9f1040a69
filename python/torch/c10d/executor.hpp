// Who performs the operations of one kind of device.
#pragma once

#include <chrono>
#include <cstddef>

#include "kernels/movers/pad_signals.hpp"
#include "mscclpp/host/communicator/registered_buffers.hpp"
#include "operation.hpp"
#include "registered_tensors.hpp"
#include "torch_headers.hpp"

namespace mscclpp::torch_c10d {

/// Any thread may call the functions; submit() takes the operations in the order that all ranks have in common.
class Executor {
 public:
  Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  virtual ~Executor() = default;

  virtual c10::intrusive_ptr<c10d::Work> submit(Operation operation, std::uint64_t sequence) = 0;
  /// A tensor in registered memory. Called by all ranks, in the order of their other calls.
  virtual at::Tensor allocate(std::int64_t elements, const at::TensorOptions& options) = 0;
  /// Registers memory that peers can map, with the same size on all ranks. Called by them all, in the order of their
  /// other calls.
  virtual RegisteredBuffers::Handle registerBuffer(void* data, std::size_t bytes) = 0;
  /// Exchanges signals through pads in registered memory: on a GPU on the current stream, on a CPU in the calling
  /// thread. `wait` of the arguments is set here. timeout: of each wait; 0: that of the group.
  virtual void exchangeSignals(kernels::ExchangePadSignals::Args args, std::chrono::milliseconds timeout) = 0;
  /// Waits for the operations that were submitted; false if they have not ended by then.
  virtual bool finish(std::chrono::steady_clock::time_point deadline) = 0;
  virtual void setTimeout(std::chrono::milliseconds timeout) = 0;
  virtual void abort() noexcept = 0;
  /// Throws if a call has failed since.
  virtual void check() const = 0;
};

}  // namespace mscclpp::torch_c10d
