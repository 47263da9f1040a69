// Two ends of a connection over verbs in one process, each with its own context and device.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "mscclpp/host/transport/connection.hpp"
#include "mscclpp/host/transport/context.hpp"
#include "mscclpp/host/transport/endpoint.hpp"
#include "mscclpp/host/transport/registered_memory.hpp"

namespace mscclpp::test {

using Ib = EndpointConfig::Ib;
using Bytes = std::vector<unsigned char>;

inline Bytes randomBytes(std::size_t size, unsigned seed) {
  Bytes bytes(size);
  std::mt19937 generator(seed);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(generator());
  return bytes;
}

/// One end: it registers memory with the transport of its device.
struct VerbsEnd {
  std::shared_ptr<Context> context = Context::create();
  Transport transport;
  Endpoint endpoint;
  Connection connection;

  VerbsEnd(Transport ownTransport, const EndpointConfig& config) : transport(ownTransport) {
    EndpointConfig own = config;
    own.transport = ownTransport;
    own.device = DeviceType::CPU;
    endpoint = context->createEndpoint(own);
  }
  RegisteredMemory registerMemory(void* data, std::size_t size) {
    return context->registerMemory(data, size, transport);
  }
  template <typename T>
  RegisteredMemory registerMemory(std::vector<T>& data) {
    return registerMemory(data.data(), data.size() * sizeof(T));
  }
};

/// The memory as the other end receives it.
inline RegisteredMemory remoteCopy(const RegisteredMemory& memory) {
  return RegisteredMemory::deserialize(memory.serialize());
}

struct VerbsPair {
  VerbsEnd a;
  VerbsEnd b;

  explicit VerbsPair(const EndpointConfig& configA = {}, const EndpointConfig& configB = {})
      : a(Transport::IB0, configA), b(Transport::IB1, configB) {
    a.connection = a.context->connect(a.endpoint, Endpoint::deserialize(b.endpoint.serialize()));
    b.connection = b.context->connect(b.endpoint, Endpoint::deserialize(a.endpoint.serialize()));
  }
};

inline EndpointConfig with(const std::function<void(EndpointConfig&)>& change) {
  EndpointConfig config;
  change(config);
  return config;
}
inline EndpointConfig withMode(Ib::Mode mode) {
  return with([&](EndpointConfig& config) { config.ib.mode = mode; });
}

/// After this long nothing arrives any more. What is waited for takes milliseconds, or many seconds under
/// AddressSanitizer in the emulated VM of a busy machine.
inline constexpr std::chrono::seconds waitLimit{120};

/// Waits until the word is at least `value`, as a peer waits for a signal.
inline bool waitForWord(std::uint64_t& word, std::uint64_t value) {
  const auto end = std::chrono::steady_clock::now() + waitLimit;
  while (std::atomic_ref(word).load(std::memory_order_acquire) < value) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

inline void runShell(const std::string& command) {
  if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
}

/// Runs a command now and another at the end of the scope.
class ScopedCommand {
 public:
  ScopedCommand(const std::string& now, std::string later) : later_(std::move(later)) { runShell(now); }
  ~ScopedCommand() { static_cast<void>(std::system(later_.c_str()) == 0); }
  ScopedCommand(const ScopedCommand&) = delete;
  ScopedCommand& operator=(const ScopedCommand&) = delete;

 private:
  std::string later_;
};

}  // namespace mscclpp::test
