#include "host/transport/context_state.hpp"

#include <cstdint>
#include <string>

#include "host/base/process_identity.hpp"
#include "host/cuda/gpu_backend.hpp"
#include "host/memory/local_registrations.hpp"
#include "host/transport/connection_base.hpp"
#include "host/transport/memory_registration.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

namespace {

[[noreturn]] void invalid(const std::string& message) {
  throw Error(message, ErrorCode::InvalidUsage);
}

std::uint64_t pidHash() {
  const Id128 id = processId();
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < sizeof(hash); ++i) hash = hash << 8 | id[i];
  return hash;
}

}  // namespace

RegisteredMemory ContextState::registerMemory(void* data, std::size_t size, TransportFlags transports,
                                              std::shared_ptr<const void> owner) {
  if (data == nullptr || size == 0)
    invalid("registerMemory: the pointer must not be null, and the size at least one byte");
  if (size > UINTPTR_MAX - reinterpret_cast<std::uintptr_t>(data)) {
    invalid("registerMemory: " + std::to_string(size) + " bytes from that address on exceed the address space");
  }
  auto memory = std::make_shared<MemoryRegistration>();
  memory->hostHash = hostHash();
  memory->process = processId();
  memory->address = reinterpret_cast<std::uint64_t>(data);
  memory->size = size;
  memory->data = data;
  memory->transports = transports;
  memory->owners.push_back(std::move(owner));
  memory->id = randomId();
  memory->owners.push_back(addLocalRegistration(memory->id, {data, size}));
  for (const auto& backend : transports_.backends()) {
    if (!transports.has(backend->transport())) continue;
    ExportedMemory exported = backend->exportMemory(data, size);
    memory->handles.push_back(exported.handle);
    memory->owners.push_back(std::move(exported.owner));
  }
  return RegisteredMemory(std::move(memory));
}

std::shared_ptr<std::uint64_t> ContextState::allocateCounter(const Device& device) {
  std::shared_ptr<CounterPool> pool;
  {
    std::lock_guard lock(mutex_);
    auto& known = pools_[{device.type, device.id}];
    if (!known) known = std::make_shared<CounterPool>(device);
    pool = known;
  }
  return pool->allocate();
}

Endpoint ContextState::createEndpoint(EndpointConfig config) {
  TransportBackend* backend = transports_.find(config.transport);
  if (backend == nullptr) invalid("createEndpoint: the config has no transport; set EndpointConfig::transport");
  if (!backend->serves(config.device.type)) {
    const auto& [servesCpu, servesGpu, mapsMemory] = backend->properties();
    invalid("createEndpoint: " + nameOf(config.transport) + " serves " + (servesCpu ? "DeviceType::CPU" : "") +
            (servesCpu && servesGpu ? " and " : "") + (servesGpu ? "DeviceType::GPU" : "") +
            ", and the endpoint's device is " + nameOf(config.device));
  }
  if (config.device.type == DeviceType::GPU) {
    if (config.device.id < 0) config.device.id = currentGpu();
    checkGpu(config.device.id);
  }
  Endpoint endpoint;
  endpoint.resources_ = backend->createEndpoint(config);
  if (endpoint.resources_) endpoint.info_ = endpoint.resources_->serializedInfo();
  endpoint.config_ = config;
  endpoint.hostHash_ = hostHash();
  endpoint.pidHash_ = pidHash();
  return endpoint;
}

Connection ContextState::connect(std::shared_ptr<Context> context, const Endpoint& local, const Endpoint& remote,
                                 const Deadline& deadline) {
  TransportBackend* backend = transports_.find(local.transport());
  if (backend == nullptr) invalid("connect: the local endpoint is empty; make it with createEndpoint");
  if (!backend->connectsTo(remote.transport())) {
    invalid("connect: this rank's endpoint uses " + nameOf(local.transport()) + " and the peer's " +
            nameOf(remote.transport()) + "; both sides must name the same transport (any of IB0 to IB7 fit)");
  }
  if (local.pidHash() != pidHash()) {
    invalid("connect: the local endpoint was made by another process; the arguments are (local, remote)");
  }
  if (backend->properties().mapsMemory && local.hostHash() != remote.hostHash()) {
    invalid("connect: the peer is on another host, which " + nameOf(local.transport()) +
            " does not reach; if it is the same host, set MSCCLPP_HOSTID to the same text for all of its ranks");
  }
  return Connection(backend->connect(std::move(context), local, remote, deadline));
}

}  // namespace mscclpp::detail
