// The inputs and outputs of a plan's calls, as other ranks reach them: registered, or copied through memory that is.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/plan/plan_context.hpp"
#include "mscclpp/host/communicator/registered_buffer.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"

namespace mscclpp::kernels {

/// A rank's input and output, and the sizes of the largest ones of all ranks.
struct BufferRequest {
  void* input;
  void* output;
  std::size_t inputBytes;
  std::size_t outputBytes;
  std::size_t mostInputBytes;
  std::size_t mostOutputBytes;
  bool inPlace;  ///< the plan's input and output are one buffer
  /// In place, of each rank: where its input and its output lie in that buffer.
  struct Offsets {
    std::size_t input;
    std::size_t output;
  };
  std::vector<Offsets> offsetsInPlace;
  bool copied;  ///< messages are copied even if they could be registered
};

class UserBuffers {
 public:
  /// Collective, with the same sizes, inPlace and copied on all ranks. service: null if there are no Port channels.
  UserBuffers(Communicator& communicator, DeviceType where, const Backend& backend, const BufferRequest& request,
              const PlanMemory& memory, WideProxyService* service);

  const Window<>& input() const noexcept { return input_; }
  const Window<>& output() const noexcept { return output_; }
  /// For ExecutionArgs::memories.
  const plan::PortMemory* portMemories() const noexcept {
    return static_cast<const plan::PortMemory*>(portMemories_.get());
  }
  /// Whether the message is copied: the caller copies the input to input() of this rank before the plan, and output()
  /// of this rank to the output afterwards.
  bool isCopied() const noexcept { return staging_ != nullptr; }
  /// Throws Error(InvalidUsage) if a registered buffer of this rank was freed.
  void requireAllocated() const;

 private:
  std::optional<RegisteredBuffer> registeredInput_;
  std::optional<RegisteredBuffer> registeredOutput_;
  std::unique_ptr<SymmetricMemory> staging_;
  Window<> input_{};
  Window<> output_{};
  std::shared_ptr<void> portMemories_;
};

}  // namespace mscclpp::kernels
