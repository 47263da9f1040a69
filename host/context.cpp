#include "mscclpp/host/context.hpp"

#include <cstdint>
#include <string>

#include "connection_base.hpp"
#include "context_state.hpp"
#include "gpu_backend.hpp"
#include "mscclpp/host/error.hpp"
#include "registered_memory_form.hpp"
#include "registered_memory_state.hpp"

namespace mscclpp {

namespace {

[[noreturn]] void invalid(const std::string& message) {
  throw Error(message, ErrorCode::InvalidUsage);
}

std::uint64_t pidHash() {
  const detail::Id128 id = detail::processId();
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < sizeof(hash); ++i) hash = hash << 8 | id[i];
  return hash;
}

void append(std::vector<detail::MemoryHandle>& handles, std::vector<std::shared_ptr<const void>>& owners,
            detail::SharedPiece piece) {
  handles.insert(handles.end(), piece.handles.begin(), piece.handles.end());
  owners.push_back(std::move(piece.owner));
}

}  // namespace

Context::Context() : state_(std::make_unique<detail::ContextState>()) {}
Context::~Context() = default;
std::shared_ptr<Context> Context::create() {
  return std::shared_ptr<Context>(new Context());
}

RegisteredMemory Context::registerMemory(void* data, std::size_t size, TransportFlags transports) {
  return registerMemory(data, size, transports, nullptr);
}

RegisteredMemory Context::registerMemory(void* data, std::size_t size, TransportFlags transports,
                                         std::shared_ptr<const void> owner) {
  if (data == nullptr || size == 0) invalid("registerMemory: there must be a pointer and at least one byte");
  if (size > UINTPTR_MAX - reinterpret_cast<std::uintptr_t>(data)) {
    invalid("registerMemory: " + std::to_string(size) + " bytes from there on do not fit into memory");
  }
  auto state = std::make_shared<RegisteredMemory::State>();
  state->data = data;
  state->originalAddress = reinterpret_cast<std::uint64_t>(data);
  state->size = size;
  state->transports = transports;
  state->owners.push_back(std::move(owner));

  detail::MemoryForm form;
  form.hostHash = detail::hostHash();
  form.process = detail::processId();
  form.address = state->originalAddress;
  form.size = size;
  form.transports = transports;
  if (transports.has(Transport::SharedMemory)) {
    append(form.handles, state->owners, detail::shareHostMemory(data, size, state_->offers()));
  }
  if (transports.has(Transport::CudaIpc)) {
    append(form.handles, state->owners, detail::shareGpuMemory(data, size, state_->offers()));
  }
  for (int index = 0; index < static_cast<int>(Transport::NumTransports); ++index) {
    const auto transport = static_cast<Transport>(index);
    if (!(transports & detail::networkTransports).has(transport)) continue;
    append(form.handles, state->owners, state_->network(transport)->share(data, size));
  }
  state->handles = form.handles;
  state->serialized = detail::writeMemory(form);
  return RegisteredMemory(std::move(state));
}

std::shared_ptr<std::uint64_t> Context::takeCounter(const Device& device) {
  return state_->tokens(device)->take();
}

Endpoint Context::createEndpoint(EndpointConfig config) {
  const DeviceType type = config.device.type;
  switch (config.transport) {
    case Transport::SharedMemory:
      if (type != DeviceType::CPU) invalid("createEndpoint: SharedMemory serves DeviceType::CPU; a GPU takes CudaIpc");
      break;
    case Transport::CudaIpc:
      if (type != DeviceType::GPU) invalid("createEndpoint: CudaIpc serves DeviceType::GPU; a CPU takes SharedMemory");
      break;
    case Transport::Unknown:
    case Transport::NumTransports:
      invalid("createEndpoint: name a transport");
    default:  // a network
      if (type == DeviceType::Unknown) {
        invalid("createEndpoint: " + nameOf(config.transport) +
                " serves DeviceType::CPU and DeviceType::GPU; name one");
      }
  }
  if (type == DeviceType::GPU) {
    if (config.device.id < 0) config.device.id = detail::currentGpu();
    detail::checkGpu(config.device.id);
  }
  Endpoint endpoint;
  if (detail::networkTransports.has(config.transport)) {
    endpoint.network_ = state_->network(config.transport)->createEndpoint(config);
    endpoint.details_ = endpoint.network_->details();
  }
  endpoint.config_ = config;
  endpoint.hostHash_ = detail::hostHash();
  endpoint.pidHash_ = pidHash();
  return endpoint;
}

Connection Context::connect(const Endpoint& localEndpoint, const Endpoint& remoteEndpoint) {
  return connect(localEndpoint, remoteEndpoint, detail::answerDeadline());
}

Connection Context::connect(const Endpoint& localEndpoint, const Endpoint& remoteEndpoint,
                            const detail::Deadline& deadline) {
  const Transport transport = localEndpoint.transport();
  // The numbers of verbs devices mean something on their own host only.
  const bool bothVerbs = AllIBTransports.has(transport) && AllIBTransports.has(remoteEndpoint.transport());
  if (transport != remoteEndpoint.transport() && !bothVerbs) {
    invalid("connect: this rank's endpoint uses " + nameOf(transport) + " and the peer's " +
            nameOf(remoteEndpoint.transport()) + "; both sides must name the same transport (any of IB0 to IB7 fit)");
  }
  if (transport == Transport::Unknown) invalid("connect: an endpoint is empty; make it with createEndpoint");
  if (localEndpoint.pidHash() != pidHash()) {
    invalid("connect: the local endpoint was made by another process; the arguments are (local, remote)");
  }
  if (detail::networkTransports.has(transport)) {
    return Connection(state_->network(transport)->connect(shared_from_this(), localEndpoint, remoteEndpoint, deadline));
  }
  if (localEndpoint.hostHash() != remoteEndpoint.hostHash()) {
    invalid("connect: the peer is on another host, which " + nameOf(transport) +
            " does not reach; if it is the same host, set MSCCLPP_HOSTID to the same text for all of its ranks");
  }
  auto connect = transport == Transport::CudaIpc ? detail::connectCudaIpc : detail::connectSharedMemory;
  return Connection(connect(shared_from_this(), localEndpoint, remoteEndpoint));
}

}  // namespace mscclpp
