// One side of a connection, before the two sides meet.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "mscclpp/host/device.hpp"
#include "mscclpp/host/transport.hpp"

namespace mscclpp {

namespace detail {
class Network;
class NetworkEndpoint;
}  // namespace detail

/// What a rank asks of its side of a connection.
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
    /// How signals travel: by atomics of the network device (Host), or by messages to the peer's host (HostNoAtomic).
    /// Default is what MSCCLPP_IBV_MODE says. Atomics are used if both sides have them and neither says HostNoAtomic.
    enum class Mode { Default, Host, HostNoAtomic };

    /// The transport says which device; -1 or its number.
    int deviceIndex = -1;
    /// From 1; -1: the first that is active.
    int port = DefaultPort;
    /// -1: what MSCCLPP_IB_GID_INDEX says, else RoCE v2 over IPv4 where there is one.
    int gidIndex = DefaultGidIndex;
    /// Completions that can wait to be read; at most so many requests are under way.
    int maxCqSize = DefaultMaxCqSize;
    /// Completions that are read at once.
    int maxCqPollNum = DefaultMaxCqPollNum;
    /// Requests under way, for each queue pair.
    int maxSendWr = DefaultMaxSendWr;
    /// Signals of the peer that can arrive before this host has looked; used without atomics only.
    int maxRecvWr = DefaultMaxRecvWr;
    /// Requests that are started with one call to the device.
    int maxWrPerSend = DefaultMaxWrPerSend;
    Mode mode = Mode::Default;
    /// Service level, 0 to 15.
    int sl = 0;
    /// Of the global header, 0 to 255: on RoCE the DSCP in its upper six bits.
    int trafficClass = 0;
    /// In the port's table of partitions.
    int pkeyIndex = 0;
    /// 1 to 16; both sides use the smaller number. With several, large writes are cut over them: then writes are ordered
    /// by updateAndSync and flush only, and a signal waits for the completion of the large writes before it.
    int queuePairs = 1;
    /// An unanswered packet is sent again after 4.096 us * 2^timeout (1 to 31), at most `retryCount` (0 to 7) times; then
    /// the peer counts as lost. 16 and 6 make about 2 s, up to four times that on some devices. A retryCount of 7 makes
    /// software devices try for ever.
    int timeout = DefaultTimeout;
    int retryCount = DefaultRetryCount;
  };

  /// Settings of CudaIpc, for the copies that this side starts.
  struct CudaIpc {
    /// Large copies are cut over so many streams (1 to 16), which may keep as many copy engines busy.
    int streams = 1;
    /// A part is at least this long.
    std::uint64_t bytesPerStream = 8 << 20;
  };

  Transport transport = Transport::Unknown;
  Device device = DeviceType::GPU;
  /// Writes that may be outstanding; -1 leaves it to the transport.
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

/// Made by Context::createEndpoint; a value that travels to the peer in serialised form. Over a network an endpoint has
/// resources of its own and serves one connection; copies share them, a deserialised one has none.
class Endpoint {
 public:
  /// Stands for nothing and cannot be connected.
  Endpoint() = default;

  const EndpointConfig& config() const noexcept { return config_; }
  Transport transport() const noexcept { return config_.transport; }
  const Device& device() const noexcept { return config_.device; }
  /// Equal for ranks of one host.
  std::uint64_t hostHash() const noexcept { return hostHash_; }
  /// Equal for ranks of one process.
  std::uint64_t pidHash() const noexcept { return pidHash_; }
  int maxWriteQueueSize() const noexcept { return config_.maxWriteQueueSize; }

  /// Over a network it carries a secret: whoever has the bytes can connect.
  std::vector<char> serialize() const;
  /// Throws Error(InvalidUsage) for bytes that are no serialised endpoint.
  static Endpoint deserialize(const std::vector<char>& data);

 private:
  friend class Context;
  friend class detail::Network;

  EndpointConfig config_;
  std::uint64_t hostHash_ = 0;
  std::uint64_t pidHash_ = 0;
  std::shared_ptr<detail::NetworkEndpoint> network_;
  std::vector<char> details_;
};

}  // namespace mscclpp
