// One side's queue pairs before they are connected, and their resources.
#pragma once

#include <memory>
#include <vector>

#include "host/transport/transport_backend.hpp"
#include "host/transport/verbs/queue_pair.hpp"
#include "host/transport/verbs/region.hpp"
#include "host/transport/verbs/signal_receiver.hpp"

namespace mscclpp::detail::ib {

/// Resources shared by the endpoints and connections of one device.
struct VerbsResources {
  std::shared_ptr<VerbsDevice> device;
  std::shared_ptr<RegionTable> regions;
  std::shared_ptr<SignalReceiver> receiver;
};

class VerbsEndpoint : public EndpointResources {
 public:
  /// Throws Error(InvalidUsage) for settings that are out of range or that the device does not have.
  VerbsEndpoint(VerbsResources resources, const EndpointConfig& config);
  ~VerbsEndpoint() override { close(); }

  std::vector<char> serializedInfo() const override { return localInfo_.serialize(); }

  /// Connects the queue pairs to the peer's, as many as both have; posts receives if signals do not use atomics. Called
  /// once.
  void connect(const EndpointInfo& peer, SignalMode mode);
  /// Destroys the queue pairs: no request of the peer reaches this side afterwards.
  void close() noexcept;

  const VerbsResources& resources() const noexcept { return resources_; }
  const EndpointConfig::Ib& settings() const noexcept { return config_.ib; }
  const Port& port() const noexcept { return port_; }
  const EndpointInfo& localInfo() const noexcept { return localInfo_; }
  ibv_cq* sendCq() const noexcept { return sendCq_.get(); }
  InboundSignals& inbound() const noexcept { return *inbound_; }
  const std::vector<std::unique_ptr<QueuePair>>& pairs() const noexcept { return pairs_; }

 private:
  VerbsResources resources_;
  EndpointConfig config_;
  Port port_;
  QueuePairCapacity size_;
  EndpointInfo localInfo_;
  IbvPtr<ibv_cq> sendCq_;
  /// For the first queue pair. Always created: the mode is known only from the peer's endpoint.
  std::shared_ptr<InboundSignals> inbound_;
  std::vector<std::unique_ptr<QueuePair>> pairs_;
  bool connected_ = false;
};

}  // namespace mscclpp::detail::ib
