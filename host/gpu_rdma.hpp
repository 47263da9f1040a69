// What network devices need of CUDA to reach GPU memory. Implemented in host/cuda/; without_cuda.cpp stands in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "unique_fd.hpp"

namespace mscclpp::detail {

/// Of the PCI device, as in "0000:3b:00.0".
std::string gpuBusId(int device);

/// GPU memory as a descriptor that kernels' drivers pass on to other devices.
struct DmaBuf {
  UniqueFd fd;
  /// Where the memory starts in what the descriptor stands for.
  std::uint64_t offset;
};

/// Nothing where this GPU and driver cannot export the memory so.
std::optional<DmaBuf> exportDmaBuf(void* data, std::size_t size);

/// Writes words of one GPU's memory from a thread of the host, each after everything that network devices had written
/// to that memory before the call.
class GpuWordWriter {
 public:
  virtual ~GpuWordWriter() = default;
  /// What the word holds; waits for it.
  virtual std::uint64_t load(const std::uint64_t* word) = 0;
  virtual void store(std::uint64_t* word, std::uint64_t value) = 0;
};

std::unique_ptr<GpuWordWriter> makeGpuWordWriter(int device);

}  // namespace mscclpp::detail
