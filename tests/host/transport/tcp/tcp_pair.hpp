// Two ends of TCP connections in one process, each with its own context, as for two ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/transport/connection.hpp"
#include "mscclpp/host/transport/context.hpp"

namespace mscclpp::test {

inline Endpoint remoteCopy(const Endpoint& endpoint) {
  return Endpoint::deserialize(endpoint.serialize());
}

inline RegisteredMemory remoteCopy(const RegisteredMemory& memory) {
  return RegisteredMemory::deserialize(memory.serialize());
}

struct TcpPair {
  std::array<std::shared_ptr<Context>, 2> contexts{Context::create(), Context::create()};
  std::array<Connection, 2> connections;

  TcpPair() { connections = connect(); }

  /// One more connection.
  std::array<Connection, 2> connect() const {
    const EndpointConfig config{Transport::Ethernet, DeviceType::CPU};
    const Endpoint first = contexts[0]->createEndpoint(config);
    const Endpoint second = contexts[1]->createEndpoint(config);
    return {contexts[0]->connect(first, remoteCopy(second)), contexts[1]->connect(second, remoteCopy(first))};
  }
};

/// Memory of one side, registered for TCP, with guard bytes around it.
class GuardedMemory {
 public:
  GuardedMemory(Context& context, std::size_t bytes)
      : bytes_(bytes),
        storage_(bytes + 2 * guard, guardByte),
        memory_(context.registerMemory(data(), bytes, Transport::Ethernet)) {
    std::memset(data(), 0, bytes);
  }

  char* data() { return storage_.data() + guard; }
  std::uint64_t* words() { return reinterpret_cast<std::uint64_t*>(data()); }
  const RegisteredMemory& memory() const { return memory_; }
  RegisteredMemory remote() const { return remoteCopy(memory_); }
  std::size_t bytes() const { return bytes_; }
  void withdraw() { memory_ = RegisteredMemory(); }

  void fill(unsigned seed) {
    std::mt19937_64 random(seed);
    for (std::size_t i = 0; i < bytes_; ++i) data()[i] = static_cast<char>(random());
  }
  bool guardsAreIntact() const {
    for (std::size_t i = 0; i < guard; ++i) {
      if (storage_[i] != guardByte || storage_[guard + bytes_ + i] != guardByte) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t guard = 4096;
  static constexpr char guardByte = 0x5a;

  std::size_t bytes_;
  std::vector<char> storage_;
  RegisteredMemory memory_;
};

/// The error that a call throws, or nothing.
struct Failure {
  ErrorCode code = ErrorCode::InternalError;
  std::string text;
};

inline Failure failureOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.getErrorCode(), error.what()};
  }
  return {};
}

}  // namespace mscclpp::test
