// One side of a connection, before the two sides are connected.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/base/transport.hpp"

namespace mscclpp {

namespace detail {
class ContextState;
class EndpointResources;
class TransportBackend;
}  // namespace detail

/// The settings of one side of a connection.
struct EndpointConfig {
  /// Settings of the verbs transports. createEndpoint throws Error(InvalidUsage) for values out of range.
  struct Ib {
    static constexpr int DefaultPort = -1;
    static constexpr int DefaultGidIndex = -1;
    static constexpr int DefaultMaxCqSize = 1024;
    static constexpr int DefaultMaxCqPollNum = 256;
    static constexpr int DefaultMaxSendWr = 8192;
    static constexpr int DefaultMaxRecvWr = 256;
    static constexpr int DefaultMaxWrPerSend = 64;
    static constexpr int DefaultTimeout = 16;
    static constexpr int DefaultRetryCount = 6;
    /// How signals are sent: by atomics of the network device (Host), or by messages to the peer's host (HostNoAtomic).
    /// Default: MSCCLPP_IBV_MODE. Atomics are used if both sides support them and neither selects HostNoAtomic.
    enum class Mode { Default, Host, HostNoAtomic };

    /// The transport selects the device; -1 or its index.
    int deviceIndex = -1;
    /// Counted from 1; -1: the first active port.
    int port = DefaultPort;
    /// -1: MSCCLPP_IB_GID_INDEX, else RoCE v2 over IPv4 if available.
    int gidIndex = DefaultGidIndex;
    /// Capacity of the completion queue; limits the outstanding requests.
    int maxCqSize = DefaultMaxCqSize;
    /// Completions read per poll.
    int maxCqPollNum = DefaultMaxCqPollNum;
    /// Outstanding requests per queue pair.
    int maxSendWr = DefaultMaxSendWr;
    /// Signals of the peer that can arrive before this host handles them; used only without atomics.
    int maxRecvWr = DefaultMaxRecvWr;
    /// Requests posted per call.
    int maxWrPerSend = DefaultMaxWrPerSend;
    Mode mode = Mode::Default;
    /// Service level, 0 to 15.
    int sl = 0;
    /// Of the global header, 0 to 255: on RoCE the DSCP in its upper six bits.
    int trafficClass = 0;
    /// Index in the port's partition table.
    int pkeyIndex = 0;
    /// 1 to 16; both sides use the smaller number. With several, large writes are striped across them: writes are then
    /// ordered only by updateAndSync and flush, and a signal waits for the completion of the large writes before it.
    int queuePairs = 1;
    /// A packet that is not acknowledged is retransmitted after 4.096 us * 2^timeout (1 to 31), at most `retryCount` (0
    /// to 7) times; then the connection fails. 16 and 6 give about 2 s, up to four times that on some devices. With a
    /// retryCount of 7 software devices retry forever.
    int timeout = DefaultTimeout;
    int retryCount = DefaultRetryCount;
  };

  /// Settings of CudaIpc, for the copies that this side issues.
  struct CudaIpc {
    /// Large copies are split over this many streams (1 to 16), which may use as many copy engines.
    int streams = 1;
    /// Minimum size of a part.
    std::uint64_t bytesPerStream = 8 << 20;
  };

  Transport transport = Transport::Unknown;
  Device device = DeviceType::GPU;
  /// Maximum number of outstanding writes; -1: the transport's default.
  int maxWriteQueueSize = -1;
  Ib ib{};
  CudaIpc cudaIpc{};

  EndpointConfig() = default;
  /// The device is the current GPU, or the CPU for SharedMemory.
  EndpointConfig(Transport transport)  // NOLINT: implicit, so that a transport is a configuration
      : EndpointConfig(transport, transport == Transport::SharedMemory ? DeviceType::CPU : DeviceType::GPU) {}
  EndpointConfig(Transport transport, Device device, int maxWriteQueueSize = -1)
      : EndpointConfig(transport, device, maxWriteQueueSize, Ib{}) {}
  EndpointConfig(Transport transport, Device device, int maxWriteQueueSize, Ib ib)
      : transport(transport), device(device), maxWriteQueueSize(maxWriteQueueSize), ib(ib) {}
};

/// Created by Context::createEndpoint, and sent to the peer in serialised form. Over a network an endpoint owns
/// resources and serves one connection; copies share them, a deserialised one has none.
class Endpoint {
 public:
  /// Empty; cannot be connected.
  Endpoint() = default;

  const EndpointConfig& config() const noexcept { return config_; }
  Transport transport() const noexcept { return config_.transport; }
  const Device& device() const noexcept { return config_.device; }
  /// Equal for ranks of one host.
  std::uint64_t hostHash() const noexcept { return hostHash_; }
  /// Equal for ranks of one process.
  std::uint64_t pidHash() const noexcept { return pidHash_; }
  int maxWriteQueueSize() const noexcept { return config_.maxWriteQueueSize; }

  /// Over TCP it contains a secret: any process that has the bytes can connect.
  std::vector<char> serialize() const;
  /// Throws Error(InvalidUsage) for bytes that are not a serialised endpoint.
  static Endpoint deserialize(const std::vector<char>& data);

 private:
  friend class detail::ContextState;
  friend class detail::TransportBackend;

  EndpointConfig config_;
  std::uint64_t hostHash_ = 0;
  std::uint64_t pidHash_ = 0;
  std::shared_ptr<detail::EndpointResources> resources_;
  std::vector<char> info_;
};

}  // namespace mscclpp
