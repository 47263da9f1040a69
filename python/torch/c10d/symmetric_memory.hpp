// The symmetric memory of PyTorch (torch.distributed._symmetric_memory) in memory of this library.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>
#include <vector>

#include "backend.hpp"
#include "mscclpp/host/communicator/registered_buffers.hpp"
#include "mscclpp/sync/window.hpp"
#include "torch_headers.hpp"

namespace mscclpp::torch_c10d {

/// What the ranks of a group know of each other's allocations. Made by all of them.
struct SymmetricMapping {
  c10::weak_intrusive_ptr<Backend> backend;
  RegisteredBuffers::Handle registration;
  Window<> memory;               ///< of all ranks
  std::vector<int> globalRanks;  ///< empty: not known
  at::Tensor deviceAddresses;    ///< on the device: of the buffers, then of the signal pads
  at::Tensor deviceGlobalRanks;  ///< on the device
};

/// One allocation: the buffer, and behind it the signal pad, both zero-filled. Shared by the tensor and by those who
/// have met the other ranks on it.
struct SymmetricBlock {
  /// The size of the allocation for a buffer of so many bytes, now that signal pads have the size that PyTorch says.
  static std::size_t allocationBytes(std::size_t bytes);

  SymmetricBlock(std::shared_ptr<void> memory, std::size_t bytes, c10::Device device);
  /// Waits for the device, whose kernels may use the mappings.
  ~SymmetricBlock();
  SymmetricBlock(const SymmetricBlock&) = delete;
  SymmetricBlock& operator=(const SymmetricBlock&) = delete;

  /// The mapping for a group, made by the first call, which is one of all its ranks.
  const SymmetricMapping& mappingFor(const c10::intrusive_ptr<Backend>& backend);

  const std::shared_ptr<void> memory;
  const std::size_t bytes;      ///< of the buffer
  const std::size_t padOffset;  ///< of the signal pad, in bytes
  const std::size_t padBytes;
  const c10::Device device;
  std::optional<std::string> groupName;  ///< given with the allocation

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<SymmetricMapping>> mappings_;
};

/// One rank's view of an allocation that all ranks of a group have made. Collectives of the group store into it without
/// a copy through scratch. Any thread may call the functions. Signals and barriers are bounded by the given timeout, or
/// by that of the group; on GPUs they are enqueued on the current stream, and a failure is reported by later calls.
class SymmetricMemory final : public c10d::symmetric_memory::SymmetricMemory {
 public:
  SymmetricMemory(std::shared_ptr<SymmetricBlock> block, const SymmetricMapping& mapping, std::size_t offset);

  std::vector<void*> get_buffer_ptrs() override;
  std::vector<void*> get_signal_pad_ptrs() override;
  void** get_buffer_ptrs_dev() override;
  void** get_signal_pad_ptrs_dev() override;
  std::size_t get_buffer_size() override { return block_->bytes; }
  std::size_t get_offset() override { return offset_; }
  bool has_multicast_support() override { return false; }
  void* get_multicast_ptr() override { return nullptr; }
  void barrier(int channel, std::size_t timeoutMilliseconds) override;
  void put_signal(int to, int channel, std::size_t timeoutMilliseconds) override;
  void wait_signal(int from, int channel, std::size_t timeoutMilliseconds) override;
  int get_rank() override { return team_.rank(); }
  int get_world_size() override { return team_.size(); }
  c10::Device get_device() override { return block_->device; }
  const std::vector<int>& get_rank_to_global_rank() override;
  int* get_rank_to_global_rank_dev() override;
  bool world_within_direct_access() override { return true; }

 private:
  std::vector<void*> addresses(std::size_t offset) const;
  std::uint64_t bitOf(const char* call, int peer) const;
  void exchange(const char* call, int channel, std::uint64_t to, std::uint64_t from, std::size_t timeoutMilliseconds);

  const std::shared_ptr<SymmetricBlock> block_;
  const SymmetricMapping& mapping_;  // of the block
  const Team<> team_;
  const std::size_t offset_;
};

/// Makes the memory known to PyTorch, for both kinds of device: for CUDA under the name that
/// torch.distributed._symmetric_memory.set_backend() takes; for CPU tensors, which nothing else serves, at once.
void registerSymmetricMemory();
inline constexpr const char* symmetricMemoryName = "MSCCLPP";

}  // namespace mscclpp::torch_c10d
