// The inputs and outputs of a plan's calls, as other ranks reach them: registered, or copied through memory that is.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/backend.hpp"
#include "mscclpp/host/communicator/registered_buffer.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"

namespace mscclpp::kernels {

/// A call's input and output on this rank, and the sizes of those of all ranks, in bytes.
struct BufferRequest {
  void* input;
  void* output;
  struct Sizes {
    std::size_t input;
    std::size_t output;
    /// In place: where the rank's input and its output lie in the one buffer that has both.
    std::size_t inputOffset;
    std::size_t outputOffset;

    /// In place: of the buffer that has both.
    std::size_t both() const noexcept { return input > output ? input : output; }
  };
  std::vector<Sizes> ofRanks;
  bool inPlace;
  bool copied;  ///< messages are copied even if they could be registered

  bool hasOffsets() const noexcept;
};

/// Where the inputs and outputs of all ranks are in a call.
struct BufferWindows {
  Window<> input{};
  Window<> output{};
};

/// Registered buffers at one pair of addresses. What is registered is the allocation that each of them lies in, so that
/// another registration of the same allocations, for another address or size, maps nothing.
class UserBuffers {
 public:
  /// Collective: called by all ranks with requests for the same call, which are not `copied`.
  UserBuffers(Communicator& communicator, const Backend& backend, const BufferRequest& request);

  /// Whether peers cannot map a buffer, so that messages are copied through Staging. The same on all ranks.
  bool isCopied() const noexcept { return buffers_.empty(); }
  BufferWindows windows(const BufferRequest& request) const;
  /// The memory of a rank's input or output; empty if it has none. isOutput: the output's.
  const RegisteredMemory& memory(bool isOutput, int rank) const;
  /// Throws Error(InvalidUsage) if a registered buffer of this rank was freed.
  void requireAllocated() const;

 private:
  struct Registered {
    RegisteredBuffer buffer;
    std::vector<std::size_t> offsets;  ///< of each rank's buffer in its allocation

    std::byte* at(int rank) const;
  };

  std::vector<Registered> buffers_;  ///< input and output; in place: the one that has both
};

/// Memory that messages are copied through, as all ranks map it.
class Staging {
 public:
  /// The size that a call needs: grown, so that few sizes have to be set up.
  static std::size_t bytesFor(const BufferRequest& request);
  /// Collective. bytes: of bytesFor(), or more.
  Staging(Communicator& communicator, DeviceType where, bool inPlace, std::size_t bytes);

  /// The caller copies the input to the input window of this rank before the plan, and the output window of this rank
  /// to the output afterwards.
  BufferWindows windows(const BufferRequest& request) const;
  const SymmetricMemory& memory() const noexcept { return *memory_; }

 private:
  std::size_t outputOffset_;
  std::unique_ptr<SymmetricMemory> memory_;
};

}  // namespace mscclpp::kernels
