#include "network.hpp"

#include "mscclpp/host/error.hpp"

namespace mscclpp::detail {

const std::shared_ptr<NetworkEndpoint>& Network::resourcesOf(const Endpoint& local) {
  if (!local.network_) {
    throw Error(
        "connect: the local endpoint is a copy that was deserialised; pass the one that createEndpoint returned",
        ErrorCode::InvalidUsage);
  }
  return local.network_;
}

const std::vector<char>& Network::detailsOf(const Endpoint& remote) {
  return remote.details_;
}

std::shared_ptr<Network> openNetwork(Transport transport) {
  if (transport == Transport::Ethernet) return openTcp();
  if (AllIBTransports.has(transport)) return openVerbs(transport);
  throw Error("there is no network behind the transport " + nameOf(transport), ErrorCode::InternalError);
}

}  // namespace mscclpp::detail
