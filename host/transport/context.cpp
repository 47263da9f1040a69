#include "mscclpp/host/transport/context.hpp"

#include "host/memory/memory_transport.hpp"
#include "host/transport/context_state.hpp"

namespace mscclpp {

Context::Context() : state_(std::make_unique<detail::ContextState>()) {}
Context::~Context() = default;
std::shared_ptr<Context> Context::create() {
  return std::shared_ptr<Context>(new Context());
}

RegisteredMemory Context::registerMemory(void* data, std::size_t size, TransportFlags transports) {
  return state_->registerMemory(data, size, transports, nullptr);
}

Endpoint Context::createEndpoint(EndpointConfig config) {
  return state_->createEndpoint(config);
}

Connection Context::connect(const Endpoint& localEndpoint, const Endpoint& remoteEndpoint) {
  return state_->connect(shared_from_this(), localEndpoint, remoteEndpoint, detail::peerReplyDeadline());
}

}  // namespace mscclpp
