#include "host/transport/verbs/verbs_endpoint.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail::ib {

namespace {

// Outstanding atomics in each direction; most devices support 16, and a stream of signals does not need more.
constexpr int maxOutstandingAtomics = 16;

[[noreturn]] void invalidConfig(const std::string& message) {
  throw Error("createEndpoint: " + message, ErrorCode::InvalidUsage);
}

void checkSetting(const char* name, int value, int low, int high) {
  if (value >= low && value <= high) return;
  invalidConfig(std::string("EndpointConfig::Ib::") + name + " is " + std::to_string(value) + "; allowed is " +
                std::to_string(low) + " to " + std::to_string(high));
}

const EndpointConfig& checked(const EndpointConfig& config, const VerbsDevice& device) {
  const EndpointConfig::Ib& ib = config.ib;
  const int index = static_cast<int>(config.transport) - static_cast<int>(Transport::IB0);
  if (ib.deviceIndex != -1) checkSetting("deviceIndex", ib.deviceIndex, index, index);
  if (config.maxWriteQueueSize != -1 && config.maxWriteQueueSize < 1) {
    invalidConfig("EndpointConfig::maxWriteQueueSize is " + std::to_string(config.maxWriteQueueSize) +
                  "; allowed is 1 or more, or -1");
  }
  if (ib.port != EndpointConfig::Ib::DefaultPort) checkSetting("port", ib.port, 1, 255);
  if (ib.gidIndex != EndpointConfig::Ib::DefaultGidIndex) checkSetting("gidIndex", ib.gidIndex, 0, 255);
  checkSetting("maxCqSize", ib.maxCqSize, 1, device.attributes().max_cqe);
  checkSetting("maxCqPollNum", ib.maxCqPollNum, 1, 65536);
  checkSetting("maxSendWr", ib.maxSendWr, 1, device.attributes().max_qp_wr);
  checkSetting("maxRecvWr", ib.maxRecvWr, 1, std::min(device.attributes().max_qp_wr, device.attributes().max_cqe));
  checkSetting("maxWrPerSend", ib.maxWrPerSend, 1, 65536);
  checkSetting("sl", ib.sl, 0, 15);
  checkSetting("trafficClass", ib.trafficClass, 0, 255);
  checkSetting("pkeyIndex", ib.pkeyIndex, 0, device.attributes().max_pkeys - 1);
  checkSetting("queuePairs", ib.queuePairs, 1, maxQueuePairs);
  checkSetting("timeout", ib.timeout, 1, 31);
  checkSetting("retryCount", ib.retryCount, 0, 7);
  return config;
}

// Each request may produce a completion, so the completion queue limits the outstanding requests.
QueuePairCapacity sizeOf(const EndpointConfig& config) {
  const EndpointConfig::Ib& ib = config.ib;
  int sends = std::min(ib.maxSendWr, std::max(ib.maxCqSize / ib.queuePairs, 1));
  if (config.maxWriteQueueSize > 0) sends = std::min(sends, config.maxWriteQueueSize);
  return {sends, std::min(ib.maxWrPerSend, sends), 0};
}

SignalMode signalModeOf(const EndpointConfig::Ib& config, const VerbsDevice& device) {
  using Mode = EndpointConfig::Ib::Mode;
  const bool wanted = config.mode == Mode::Host || (config.mode == Mode::Default && env()->ibvMode == "host");
  return wanted && device.hasAtomics() ? SignalMode::Atomic : SignalMode::Immediate;
}

std::string processDescription() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return "process " + std::to_string(::getpid()) + " on host " + host.data();
}

}  // namespace

VerbsEndpoint::VerbsEndpoint(VerbsResources resources, const EndpointConfig& config)
    : resources_(std::move(resources)),
      config_(checked(config, *resources_.device)),
      port_(resources_.device->port(config.ib.port, config.ib.gidIndex >= 0 ? config.ib.gidIndex : env()->ibGidIndex)),
      size_(sizeOf(config)) {
  const VerbsDevice& device = *resources_.device;
  localInfo_.nic = nameOf(device, port_);
  localInfo_.process = processDescription();
  localInfo_.mode = signalModeOf(config.ib, device);
  localInfo_.ethernet = port_.ethernet();
  localInfo_.mtu = port_.attributes.active_mtu;
  localInfo_.lid = port_.attributes.lid;
  localInfo_.hasGid = port_.gidIndex >= 0;
  localInfo_.gid = port_.gid;
  localInfo_.atomics = static_cast<std::uint32_t>(std::clamp(
      std::min(device.attributes().max_qp_rd_atom, device.attributes().max_qp_init_rd_atom), 1, maxOutstandingAtomics));

  const int pairs = config.ib.queuePairs;
  sendCq_.reset(ibvSymbols().createCq(device.context(), pairs * size_.sends, nullptr, nullptr, 0));
  if (!sendCq_) throw IbError("creating a completion queue of " + device.name(), errno);
  inbound_ = resources_.receiver->open(config.ib.maxRecvWr);
  for (int i = 0; i < pairs; ++i) {
    QueuePairCapacity size = size_;
    if (i == 0) size.receives = config.ib.maxRecvWr;
    pairs_.push_back(std::make_unique<QueuePair>(device, port_, config.ib, sendCq_.get(), inbound_->queue(), size));
    localInfo_.queuePairs.push_back(pairs_.back()->address());
  }
}

void VerbsEndpoint::connect(const EndpointInfo& peer, SignalMode mode) {
  if (connected_) {
    throw Error("connect: the local endpoint serves a connection already; make one endpoint for each connection",
                ErrorCode::InvalidUsage);
  }
  if (localInfo_.ethernet != peer.ethernet) {
    throw Error("connect: " + localInfo_.nic + " is " + (localInfo_.ethernet ? "RoCE" : "InfiniBand") + " and " +
                    peer.nic + " of " + peer.process + " is not; choose devices of one kind with MSCCLPP_HCA_DEVICES",
                ErrorCode::InvalidUsage);
  }
  connected_ = true;
  pairs_.resize(std::min(pairs_.size(), peer.queuePairs.size()));
  const std::uint32_t atomics = std::min(localInfo_.atomics, peer.atomics);
  // Post receives first: the peer may send a signal as soon as the queue pair is connected.
  if (mode == SignalMode::Immediate) inbound_->start(*pairs_.front(), config_.ib.maxRecvWr);
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    pairs_[i]->connect(port_, config_.ib, peer, peer.queuePairs[i], atomics);
  }
}

void VerbsEndpoint::close() noexcept {
  if (inbound_) inbound_->stop();
  pairs_.clear();
}

}  // namespace mscclpp::detail::ib
