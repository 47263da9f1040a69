// One side of a connection, before the two sides meet.
#pragma once

#include <cstdint>
#include <vector>

#include "mscclpp/host/device.hpp"
#include "mscclpp/host/transport.hpp"

namespace mscclpp {

/// What a rank asks of its side of a connection.
struct EndpointConfig {
  /// Settings of the verbs transports.
  struct Ib {
    static constexpr int DefaultPort = -1;
    static constexpr int DefaultGidIndex = -1;
    static constexpr int DefaultMaxCqSize = 1024;
    static constexpr int DefaultMaxCqPollNum = 256;
    static constexpr int DefaultMaxSendWr = 8192;
    static constexpr int DefaultMaxRecvWr = 16;
    static constexpr int DefaultMaxWrPerSend = 64;
    enum class Mode { Default, Host, HostNoAtomic };

    int deviceIndex = -1;
    int port = DefaultPort;
    int gidIndex = DefaultGidIndex;
    int maxCqSize = DefaultMaxCqSize;
    int maxCqPollNum = DefaultMaxCqPollNum;
    int maxSendWr = DefaultMaxSendWr;
    int maxRecvWr = DefaultMaxRecvWr;
    int maxWrPerSend = DefaultMaxWrPerSend;
    Mode mode = Mode::Default;
  };

  Transport transport = Transport::Unknown;
  Device device = DeviceType::GPU;
  /// Writes that may be outstanding; -1 leaves it to the transport.
  int maxWriteQueueSize = -1;
  Ib ib{};

  EndpointConfig() = default;
  /// The device is the current GPU, or the CPU for SharedMemory.
  EndpointConfig(Transport transport)  // NOLINT: implicit, so that a transport is a configuration
      : EndpointConfig(transport, transport == Transport::SharedMemory ? DeviceType::CPU : DeviceType::GPU) {}
  EndpointConfig(Transport transport, Device device, int maxWriteQueueSize = -1)
      : EndpointConfig(transport, device, maxWriteQueueSize, Ib{}) {}
  EndpointConfig(Transport transport, Device device, int maxWriteQueueSize, Ib ib)
      : transport(transport), device(device), maxWriteQueueSize(maxWriteQueueSize), ib(ib) {}
};

/// Made by Context::createEndpoint; a value that travels to the peer in serialised form.
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

  std::vector<char> serialize() const;
  /// Throws Error(InvalidUsage) for bytes that are no serialised endpoint.
  static Endpoint deserialize(const std::vector<char>& data);

 private:
  friend class Context;

  EndpointConfig config_;
  std::uint64_t hostHash_ = 0;
  std::uint64_t pidHash_ = 0;
};

}  // namespace mscclpp
