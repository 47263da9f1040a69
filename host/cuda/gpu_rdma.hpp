// The CUDA functions that let network devices access GPU memory. Implemented in host/cuda/; without_cuda.cpp replaces
// it in a build without the toolkit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "host/base/unique_fd.hpp"

namespace mscclpp::detail {

/// GPU memory as a descriptor that drivers pass to other devices.
struct DmaBuf {
  UniqueFd fd;
  /// Offset of the memory in the exported range.
  std::uint64_t offset;
};

/// Empty if this GPU and driver cannot export the memory in this way.
std::optional<DmaBuf> exportDmaBuf(void* data, std::size_t size);

/// Writes words of one GPU's memory from a host thread, each after everything that network devices had written to that
/// memory before the call.
class GpuWordWriter {
 public:
  virtual ~GpuWordWriter() = default;
  /// The current value of the word; waits for it.
  virtual std::uint64_t load(const std::uint64_t* word) = 0;
  virtual void store(std::uint64_t* word, std::uint64_t value) = 0;
};

std::unique_ptr<GpuWordWriter> makeGpuWordWriter(int device);

}  // namespace mscclpp::detail
