// TCP as a transport: the network of one context, opened at the first use.
#include <mutex>

#include "host/transport/tcp/network.hpp"
#include "host/transport/transport_backend.hpp"

namespace mscclpp::detail {

namespace {

class TcpTransport : public TransportBackend {
 public:
  TcpTransport() : TransportBackend(Transport::Ethernet, {.servesCpu = true, .servesGpu = true, .mapsMemory = false}) {}

  ExportedMemory exportMemory(void* data, std::size_t size) override { return network()->exportMemory(data, size); }

  std::shared_ptr<EndpointResources> createEndpoint(const EndpointConfig& config) override {
    return network()->createEndpoint(config);
  }

  std::shared_ptr<ConnectionBase> connect(std::shared_ptr<Context> context, const Endpoint& local,
                                          const Endpoint& remote, Deadline deadline) override {
    return resourcesOf<tcp::TcpEndpoint>(local)->connect(std::move(context), local, remote, infoOf(remote), deadline);
  }

 private:
  std::shared_ptr<tcp::TcpNetwork> network() {
    std::lock_guard lock(mutex_);
    if (!network_) network_ = std::make_shared<tcp::TcpNetwork>();
    return network_;
  }

  std::mutex mutex_;
  std::shared_ptr<tcp::TcpNetwork> network_;
};

}  // namespace

std::unique_ptr<TransportBackend> makeTcpTransport() {
  return std::make_unique<TcpTransport>();
}

}  // namespace mscclpp::detail
