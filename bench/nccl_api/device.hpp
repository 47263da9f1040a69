// What the measurements need of the ranks' devices: GPUs, or none.
#pragma once

#include <cstddef>
#include <memory>

#include "mscclpp/host/base/device.hpp"

struct CUstream_st;

namespace mscclpp::bench {

class RankDevice {
 public:
  virtual ~RankDevice() = default;
  virtual DeviceType type() const = 0;
  /// Zero-filled memory.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  virtual CUstream_st* stream() = 0;
  virtual void synchronize() = 0;
  /// Bytes that are allocated on the device, by all processes; 0 for CPU ranks.
  virtual std::size_t usedBytes() = 0;
};

/// Device `index`, made current. Throws Error(InvalidUsage) in a build without CUDA.
std::unique_ptr<RankDevice> makeGpu(int index);
std::unique_ptr<RankDevice> makeCpu();
/// 0 in a build without CUDA.
int gpuCount();

}  // namespace mscclpp::bench
