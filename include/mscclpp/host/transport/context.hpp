// Creates registrations, endpoints and connections; works with any method of exchanging bytes between the ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "mscclpp/host/base/transport.hpp"
#include "mscclpp/host/transport/connection.hpp"
#include "mscclpp/host/transport/endpoint.hpp"
#include "mscclpp/host/transport/registered_memory.hpp"

namespace mscclpp {

namespace detail {
class ContextState;
}  // namespace detail

/// One rank's resources for communication with others. Any thread may call any function.
class Context : public std::enable_shared_from_this<Context> {
 public:
  static std::shared_ptr<Context> create();
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Lets peers access [data, data + size) through `transports`. CudaIpc takes GPU memory (GpuBuffer, cudaMalloc, or
  /// cuMem memory that can be exported as a POSIX descriptor); SharedMemory takes memory inside a HostBuffer; Ethernet
  /// takes any memory, as do IB0 to IB7 if their device can register it; NoTransports takes any, as the local side.
  /// Throws Error(InvalidUsage) for memory that a transport cannot access, and for a network that this build or host
  /// lacks.
  RegisteredMemory registerMemory(void* data, std::size_t size, TransportFlags transports);

  /// This rank's side of a connection. CudaIpc serves DeviceType::GPU, SharedMemory DeviceType::CPU, networks either.
  /// Throws Error(InvalidUsage) for a transport that does not serve the device or that this build or host lacks, and
  /// for settings out of range.
  Endpoint createEndpoint(EndpointConfig config);

  /// Connects a local endpoint of this context to a peer's; the peer does the same with the roles exchanged, earlier or
  /// later. Over Ethernet it connects to the peer's context, with MSCCLPP_BOOTSTRAP_TIMEOUT as its timeout, and throws
  /// Error(RemoteError) or Error(Timeout) if that does not respond. Throws Error(InvalidUsage) if the two endpoints do
  /// not match.
  Connection connect(const Endpoint& localEndpoint, const Endpoint& remoteEndpoint);

  /// Internal: host/transport/context_state.hpp has the type.
  detail::ContextState& state() const noexcept { return *state_; }

 private:
  Context();

  std::unique_ptr<detail::ContextState> state_;
};

}  // namespace mscclpp
