// The verbs device behind one of IB0 to IB7, as a network of one context.
#include "../../network.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/ib_devices.hpp"
#include "verbs_connection.hpp"

namespace mscclpp::detail {

namespace {

class VerbsNetwork : public Network {
 public:
  explicit VerbsNetwork(Transport transport) : transport_(transport) {
    parts_.device = ib::VerbsDevice::open(getIBDeviceName(transport));
    parts_.regions = std::make_shared<ib::RegionTable>(parts_.device);
    parts_.receiver = std::make_shared<ib::SignalReceiver>(parts_.device, parts_.regions);
  }

  SharedPiece share(void* data, std::size_t size) override {
    auto region = parts_.regions->share(data, size);
    MemoryHandle handle{};
    handle.kind = HandleKind::Verbs;
    handle.transport = transport_;
    handle.allocationBytes = size;
    ib::RegionKeys{region->remoteKey(), region->id()}.writeTo(handle);
    return {{handle}, std::move(region)};
  }

  std::shared_ptr<NetworkEndpoint> createEndpoint(const EndpointConfig& config) override {
    return std::make_shared<ib::VerbsEndpoint>(parts_, config);
  }

  std::shared_ptr<ConnectionBase> connect(std::shared_ptr<Context> context, const Endpoint& local,
                                          const Endpoint& remote, Deadline) override {
    auto endpoint = std::dynamic_pointer_cast<ib::VerbsEndpoint>(resourcesOf(local));
    if (!endpoint) throw Error("connect: the local endpoint is of another transport", ErrorCode::InternalError);
    return std::make_shared<ib::VerbsConnection>(std::move(context), local, remote, std::move(endpoint),
                                                 ib::Details::deserialize(detailsOf(remote)));
  }

 private:
  Transport transport_;
  ib::NetworkParts parts_;
};

}  // namespace

std::shared_ptr<Network> openVerbs(Transport transport) {
  return std::make_shared<VerbsNetwork>(transport);
}

}  // namespace mscclpp::detail
