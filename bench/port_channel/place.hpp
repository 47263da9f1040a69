// What a rank runs on: a GPU of its own, or one CPU thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "mscclpp/host/device.hpp"
#include "mscclpp/host/endpoint.hpp"
#include "mscclpp/host/port_channel.hpp"
#include "work.hpp"

namespace mscclpp::bench {

/// One kernel.
struct Order {
  Mode mode;
  Form form;
  Publish publish;
  int rank;
  int warmup;
  int messages;
  std::uint64_t bytes;
};

class Place {
 public:
  virtual ~Place() = default;
  virtual Device device() const = 0;
  virtual Transport transport() const = 0;
  virtual std::string description() const = 0;
  /// Zero-filled memory that can be registered with transport().
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;
  /// Memory that the host polls and the transport can store to.
  virtual std::shared_ptr<std::uint64_t> allocateHostWord() = 0;
  /// Runs the kernel and waits for it; returns nanoseconds, by the device's clock.
  virtual double run(const PortChannelHandle& channel, const Order& order) = 0;
  virtual double run(const WidePortChannelHandle& channel, const Order& order) = 0;
};

std::unique_ptr<Place> gpuPlace(int index);
std::unique_ptr<Place> cpuPlace();
/// How many GPUs there are, and whether each can reach the next.
int gpuCount();

/// Calls run(work) with the work for an order, its `publish` a constant.
template <class Channel, class Run>
void withWork(const Channel& channel, const Order& order, std::uint64_t* elapsed, const Run& run) {
  const auto make = [&]<Publish publish>() {
    return Work<Channel, publish>{channel,      order.mode,     order.form,  order.rank,
                                  order.warmup, order.messages, order.bytes, elapsed};
  };
  switch (order.publish) {
    case Publish::Nothing:
      return run(make.template operator()<Publish::Nothing>());
    case Publish::Device:
      return run(make.template operator()<Publish::Device>());
    default:
      return run(make.template operator()<Publish::System>());
  }
}

}  // namespace mscclpp::bench
