// One side's queue pairs before they are connected, and what they need.
#pragma once

#include <memory>
#include <vector>

#include "../../network.hpp"
#include "queue_pair.hpp"
#include "region.hpp"
#include "signal_receiver.hpp"

namespace mscclpp::detail::ib {

/// What the connections of one network share.
struct NetworkParts {
  std::shared_ptr<VerbsDevice> device;
  std::shared_ptr<RegionTable> regions;
  std::shared_ptr<SignalReceiver> receiver;
};

class VerbsEndpoint : public NetworkEndpoint {
 public:
  /// Throws Error(InvalidUsage) for settings that are out of range or that the device does not have.
  VerbsEndpoint(NetworkParts parts, const EndpointConfig& config);
  ~VerbsEndpoint() override { close(); }

  std::vector<char> details() const override { return own_.serialize(); }

  /// Joins the queue pairs to the peer's, as many as both have, and lets signals in if they come without atomics. Once.
  void connect(const Details& peer, SignalMode mode);
  /// Ends the queue pairs: nothing of the peer's reaches this side any more.
  void close() noexcept;

  const NetworkParts& parts() const noexcept { return parts_; }
  const EndpointConfig::Ib& settings() const noexcept { return config_.ib; }
  const Port& port() const noexcept { return port_; }
  const Details& own() const noexcept { return own_; }
  ibv_cq* sent() const noexcept { return sent_.get(); }
  InboundSignals& inbound() const noexcept { return *inbound_; }
  const std::vector<std::unique_ptr<QueuePair>>& pairs() const noexcept { return pairs_; }

 private:
  NetworkParts parts_;
  EndpointConfig config_;
  Port port_;
  QueuePairSize size_;
  Details own_;
  Owner<ibv_cq> sent_;
  /// For the first queue pair. There in any case: only the peer's endpoint tells how its signals come.
  std::shared_ptr<InboundSignals> inbound_;
  std::vector<std::unique_ptr<QueuePair>> pairs_;
  bool connected_ = false;
};

}  // namespace mscclpp::detail::ib
