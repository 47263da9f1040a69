#include "host/transport/transport_backend.hpp"

namespace mscclpp::detail {

ImportedMemory TransportBackend::importMemory(const MemoryHandle&, std::size_t, Deadline) {
  throw Error("memory is not mapped over " + nameOf(transport_), ErrorCode::InternalError);
}

const std::shared_ptr<EndpointResources>& TransportBackend::resourcesOf(const Endpoint& local) {
  if (!local.resources_) {
    throw Error(
        "connect: the local endpoint is a copy that was deserialised; pass the one that createEndpoint returned",
        ErrorCode::InvalidUsage);
  }
  return local.resources_;
}

const std::vector<char>& TransportBackend::infoOf(const Endpoint& remote) {
  return remote.info_;
}

}  // namespace mscclpp::detail
