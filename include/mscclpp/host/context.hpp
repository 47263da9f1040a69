// Where registrations and connections come from; usable with any way of carrying bytes between the ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "mscclpp/host/connection.hpp"
#include "mscclpp/host/endpoint.hpp"
#include "mscclpp/host/registered_memory.hpp"
#include "mscclpp/host/transport.hpp"

namespace mscclpp {

namespace detail {
class ContextState;
class Deadline;
}  // namespace detail

/// One rank's resources for reaching others. Its functions may be called by any thread.
class Context : public std::enable_shared_from_this<Context> {
 public:
  static std::shared_ptr<Context> create();
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Lets peers reach [data, data + size) by `transports`. CudaIpc takes GPU memory (GpuBuffer, cudaMalloc, or cuMem
  /// memory that can be exported as a POSIX descriptor); SharedMemory takes memory inside a HostBuffer; Ethernet takes any
  /// memory, as do IB0 to IB7 if their device can register it; NoTransports takes any, for use as the local side. Throws
  /// Error(InvalidUsage) for memory that a transport cannot reach, and for a network that this build or host lacks.
  RegisteredMemory registerMemory(void* data, std::size_t size, TransportFlags transports);

  /// This rank's side of a connection. CudaIpc serves DeviceType::GPU, SharedMemory DeviceType::CPU, networks either.
  /// Throws Error(InvalidUsage) for a transport that does not serve the device, and for a network that is not there.
  Endpoint createEndpoint(EndpointConfig config);

  /// Connects a local endpoint of this context to a peer's; the peer does the same with the roles exchanged,
  /// earlier or later. Over Ethernet it speaks with the peer's context, for MSCCLPP_BOOTSTRAP_TIMEOUT at most, and throws
  /// Error(RemoteError) or Error(Timeout) if nobody answers there. Throws Error(InvalidUsage) if the two do not fit.
  Connection connect(const Endpoint& localEndpoint, const Endpoint& remoteEndpoint);

 private:
  friend class Communicator;
  friend class SemaphoreStub;
  friend class MemoryDevice2DeviceSemaphore;
  friend class Host2DeviceSemaphore;
  Context();
  /// `owner` lives as long as the registration.
  RegisteredMemory registerMemory(void* data, std::size_t size, TransportFlags transports,
                                  std::shared_ptr<const void> owner);
  Connection connect(const Endpoint& localEndpoint, const Endpoint& remoteEndpoint, const detail::Deadline& deadline);
  /// A zero 8-byte counter in memory of the device that peers can map.
  std::shared_ptr<std::uint64_t> takeCounter(const Device& device);

  std::unique_ptr<detail::ContextState> state_;
};

}  // namespace mscclpp
