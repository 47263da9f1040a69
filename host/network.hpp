// What a transport over a network is to one context: it makes memory reachable, and endpoints, and connects them.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "connection_base.hpp"
#include "deadline.hpp"
#include "memory_transport.hpp"
#include "mscclpp/host/endpoint.hpp"
#include "mscclpp/host/transport.hpp"

namespace mscclpp::detail {

inline constexpr TransportFlags networkTransports = AllIBTransports | Transport::Ethernet;

/// A local endpoint's resources: queue pairs, a place at a listening socket. They live as long as the Endpoint or a
/// connection made of it, also beyond the context.
class NetworkEndpoint {
 public:
  /// More than any transport needs to tell; what is longer is garbage.
  static constexpr std::size_t maxDetails = 4096;

  virtual ~NetworkEndpoint() = default;
  /// What the peer needs to connect to this endpoint: opaque bytes, which travel in the serialised Endpoint. The peer's
  /// transport checks them, length included: they come from another process.
  virtual std::vector<char> details() const = 0;
};

/// One network of one context, opened at the first use of its transport. Its functions may be called by any thread.
/// What they return may outlive the context, and keeps what it needs of the network.
class Network {
 public:
  virtual ~Network() = default;

  /// Lets peers reach [data, data + size), memory of the host or of a GPU, with one handle. The piece's owner ends that:
  /// after its destructor nothing of this network touches the memory. Throws Error(InvalidUsage) for memory out of reach.
  virtual SharedPiece share(void* data, std::size_t size) = 0;
  /// `config.device` is the CPU or a GPU that exists.
  virtual std::shared_ptr<NetworkEndpoint> createEndpoint(const EndpointConfig& config) = 0;
  /// The endpoints are of this transport, `local` of this process. The peer may connect earlier or later, and two sides
  /// may be connected one after the other by one thread: so this does not wait for the peer to do the same. What it does
  /// wait for ends with `deadline`.
  virtual std::shared_ptr<ConnectionBase> connect(std::shared_ptr<Context> context, const Endpoint& local,
                                                  const Endpoint& remote, Deadline deadline) = 0;

 protected:
  /// Throws Error(InvalidUsage) unless the endpoint was made by createEndpoint in this process.
  static const std::shared_ptr<NetworkEndpoint>& resourcesOf(const Endpoint& local);
  static const std::vector<char>& detailsOf(const Endpoint& remote);
};

/// Throws Error(InvalidUsage) if the network is not built in, or this host has no such network.
std::shared_ptr<Network> openNetwork(Transport transport);

// One for each kind of network; transport/ has them.
std::shared_ptr<Network> openTcp();
std::shared_ptr<Network> openVerbs(Transport transport);

}  // namespace mscclpp::detail
