// The state of a context, and the library's internal interface to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "host/base/deadline.hpp"
#include "host/transport/counter_pool.hpp"
#include "host/transport/transport_table.hpp"
#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/transport/connection.hpp"
#include "mscclpp/host/transport/endpoint.hpp"
#include "mscclpp/host/transport/registered_memory.hpp"

namespace mscclpp::detail {

/// Any thread may call any function. They are those of Context unless otherwise stated.
class ContextState {
 public:
  /// `owner`, which may be null, lives as long as the registration.
  RegisteredMemory registerMemory(void* data, std::size_t size, TransportFlags transports,
                                  std::shared_ptr<const void> owner);
  Endpoint createEndpoint(EndpointConfig config);
  /// `context` is the one that owns this; waits for the peer end at `deadline`.
  Connection connect(std::shared_ptr<Context> context, const Endpoint& local, const Endpoint& remote,
                     const Deadline& deadline);
  /// An 8-byte counter, initially zero, in memory of the device that peers can map.
  std::shared_ptr<std::uint64_t> allocateCounter(const Device& device);

 private:
  TransportTable transports_;
  std::mutex mutex_;
  std::map<std::pair<DeviceType, int>, std::shared_ptr<CounterPool>> pools_;
};

}  // namespace mscclpp::detail
