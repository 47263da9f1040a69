// The verbs device behind one of IB0 to IB7, as a transport of one context; opened at the first use.
#include <mutex>
#include <optional>

#include "host/transport/transport_backend.hpp"
#include "host/transport/verbs/verbs_connection.hpp"
#include "host/transport/verbs/verbs_properties.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/transport/ib_devices.hpp"

namespace mscclpp::detail {

namespace {

class VerbsTransport : public TransportBackend {
 public:
  explicit VerbsTransport(Transport transport) : TransportBackend(transport, verbsProperties) {}

  ExportedMemory exportMemory(void* data, std::size_t size) override {
    auto region = resources().regions->registerMemory(data, size);
    MemoryHandle handle{};
    handle.kind = HandleKind::Verbs;
    handle.transport = transport();
    handle.allocationBytes = size;
    ib::RegionKeys{region->remoteKey(), region->id()}.writeTo(handle);
    return {handle, std::move(region)};
  }

  std::shared_ptr<EndpointResources> createEndpoint(const EndpointConfig& config) override {
    return std::make_shared<ib::VerbsEndpoint>(resources(), config);
  }

  /// The indices of verbs devices are meaningful on their own host only.
  bool connectsTo(Transport remote) const override { return AllIBTransports.has(remote); }

  std::shared_ptr<ConnectionBase> connect(std::shared_ptr<Context> context, const Endpoint& local,
                                          const Endpoint& remote, Deadline) override {
    return std::make_shared<ib::VerbsConnection>(std::move(context), local, remote,
                                                 resourcesOf<ib::VerbsEndpoint>(local),
                                                 ib::EndpointInfo::deserialize(infoOf(remote)));
  }

 private:
  ib::VerbsResources resources() {
    std::lock_guard lock(mutex_);
    if (!resources_) {
      const auto device = ib::VerbsDevice::open(getIBDeviceName(transport()));
      const auto regions = std::make_shared<ib::RegionTable>(device);
      resources_ = {device, regions, std::make_shared<ib::SignalReceiver>(device, regions)};
    }
    return *resources_;
  }

  std::mutex mutex_;
  std::optional<ib::VerbsResources> resources_;
};

}  // namespace

std::unique_ptr<TransportBackend> makeVerbsTransport(Transport transport) {
  return std::make_unique<VerbsTransport>(transport);
}

}  // namespace mscclpp::detail
