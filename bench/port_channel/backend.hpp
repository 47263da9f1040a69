// The backend of a rank: a GPU, or one CPU thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "channel_kernel.hpp"
#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/proxy/port_channel.hpp"
#include "mscclpp/host/transport/endpoint.hpp"

namespace mscclpp::bench {

/// The parameters of a kernel.
struct Workload {
  Mode mode;
  Operation operation;
  ReleaseScope releaseScope;
  int rank;
  int warmup;
  int messages;
  std::uint64_t bytes;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device device() const = 0;
  virtual Transport transport() const = 0;
  virtual std::string description() const = 0;
  /// Zero-filled memory that can be registered with transport().
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;
  /// Memory that the host polls and that the transport can write.
  virtual std::shared_ptr<std::uint64_t> allocateHostWord() = 0;
  /// Runs the kernel and waits for it; returns its time in nanoseconds, measured on the device.
  virtual double run(const PortChannelHandle& channel, const Workload& workload) = 0;
  virtual double run(const WidePortChannelHandle& channel, const Workload& workload) = 0;
};

std::unique_ptr<Backend> makeGpuBackend(int index);
std::unique_ptr<Backend> makeCpuBackend();
/// The number of GPUs.
int gpuCount();

/// Calls run(kernel) with the kernel for a workload, its `releaseScope` a constant.
template <class Channel, class Run>
void withKernel(const Channel& channel, const Workload& workload, std::uint64_t* elapsed, const Run& run) {
  const auto make = [&]<ReleaseScope releaseScope>() {
    return ChannelKernel<Channel, releaseScope>{channel,         workload.mode,     workload.operation, workload.rank,
                                                workload.warmup, workload.messages, workload.bytes,     elapsed};
  };
  switch (workload.releaseScope) {
    case ReleaseScope::None:
      return run(make.template operator()<ReleaseScope::None>());
    case ReleaseScope::Device:
      return run(make.template operator()<ReleaseScope::Device>());
    default:
      return run(make.template operator()<ReleaseScope::System>());
  }
}

}  // namespace mscclpp::bench
