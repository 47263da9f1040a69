// The interface of a transport: it exports memory to peers, maps their memory, and creates and connects endpoints.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "host/base/deadline.hpp"
#include "host/memory/memory_transport.hpp"
#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/base/transport.hpp"
#include "mscclpp/host/transport/endpoint.hpp"

namespace mscclpp {
class Context;
}

namespace mscclpp::detail {

class ConnectionBase;

/// Resources of a local endpoint, if its transport needs any: queue pairs, an entry at a listening socket. They live as
/// long as the Endpoint or a connection made from it, even after the context is destroyed.
class EndpointResources {
 public:
  /// More than any transport needs; longer information from a peer is rejected.
  static constexpr std::size_t maxInfoBytes = 4096;

  virtual ~EndpointResources() = default;
  /// The information that the peer needs to connect to this endpoint: opaque bytes, which are sent in the serialised
  /// Endpoint. The peer's transport validates them, including their length: they come from another process.
  virtual std::vector<char> serializedInfo() const = 0;
};

/// Properties of a transport, independent of the context.
struct TransportProperties {
  bool servesCpu;
  bool servesGpu;
  /// Peers map the memory, which requires the same host. Otherwise connections write it over a network.
  bool mapsMemory;
};

/// One transport of one context. Constructing it is cheap and cannot fail: sockets, devices and threads are opened at
/// the first use. Any thread may call any function. The objects it returns may outlive the context, and keep alive what
/// they need of the transport. Every function throws Error(InvalidUsage) if this build or host lacks the transport.
class TransportBackend {
 public:
  TransportBackend(Transport transport, const TransportProperties& properties)
      : transport_(transport), properties_(properties) {}
  virtual ~TransportBackend() = default;
  TransportBackend(const TransportBackend&) = delete;
  TransportBackend& operator=(const TransportBackend&) = delete;

  Transport transport() const noexcept { return transport_; }
  const TransportProperties& properties() const noexcept { return properties_; }
  bool serves(DeviceType type) const noexcept {
    return (type == DeviceType::CPU && properties_.servesCpu) || (type == DeviceType::GPU && properties_.servesGpu);
  }

  /// Lets peers access [data, data + size). After the result's owner is destroyed, no new request of a peer reaches the
  /// memory, and no network accesses it. Throws Error(InvalidUsage) for memory that it cannot export: NotShareableError
  /// if that is due to the kind of memory.
  virtual ExportedMemory exportMemory(void* data, std::size_t size) = 0;
  /// Whether the memory at `data`, which this process has exported, still is that allocation: false if it has been
  /// freed, even if its address has been allocated again. Only if the transport mapsMemory.
  virtual bool isAllocated(const MemoryHandle& /*handle*/, void* /*data*/) const { return true; }

  /// Maps memory that another process of this host has exported, for the current device if it is GPU memory. The handle
  /// comes from that process and is validated. Only if the transport mapsMemory.
  virtual ImportedMemory importMemory(const MemoryHandle& handle, std::size_t size, Deadline deadline);
  /// The same for memory of this process, which is at `data`: makes it accessible to the current device. Throws
  /// Error(RemoteError) if the exported memory has been freed, NotShareableError if the device cannot reach it.
  virtual void importLocalMemory(const MemoryHandle& /*handle*/, void* /*data*/, std::size_t /*size*/) {}

  /// Validates the settings for this transport and creates the endpoint's resources; null if it has none.
  /// `config.device` is one that serves() accepts; a GPU is known to exist.
  virtual std::shared_ptr<EndpointResources> createEndpoint(const EndpointConfig& /*config*/) { return nullptr; }

  /// Whether an endpoint of this transport connects to one of `remote`.
  virtual bool connectsTo(Transport remote) const { return remote == transport_; }
  /// `local` is of this transport and process, `remote` of one that connectsTo() accepts. The peer may connect earlier
  /// or later, and one thread may connect both sides one after the other: so this must not wait for the peer to do the
  /// same. Other waits end at `deadline`.
  virtual std::shared_ptr<ConnectionBase> connect(std::shared_ptr<Context> context, const Endpoint& local,
                                                  const Endpoint& remote, Deadline deadline) = 0;

 protected:
  /// The object that createEndpoint returned. Throws Error(InvalidUsage) for an endpoint that was deserialised.
  template <typename Resources>
  static std::shared_ptr<Resources> resourcesOf(const Endpoint& local) {
    auto resources = std::dynamic_pointer_cast<Resources>(resourcesOf(local));
    if (!resources) throw Error("connect: the local endpoint is of another transport", ErrorCode::InternalError);
    return resources;
  }
  /// The peer's serializedInfo(), not validated yet.
  static const std::vector<char>& infoOf(const Endpoint& remote);

 private:
  static const std::shared_ptr<EndpointResources>& resourcesOf(const Endpoint& local);

  Transport transport_;
  TransportProperties properties_;
};

// The available transports; each is in its own folder. `exports` must outlive the result.
std::unique_ptr<TransportBackend> makeSharedMemoryTransport(ExportTable& exports);
std::unique_ptr<TransportBackend> makeCudaIpcTransport(ExportTable& exports);
std::unique_ptr<TransportBackend> makeTcpTransport();
/// For one of IB0 to IB7.
std::unique_ptr<TransportBackend> makeVerbsTransport(Transport transport);

}  // namespace mscclpp::detail
