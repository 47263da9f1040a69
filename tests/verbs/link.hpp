// Two ends of a connection over verbs in one process, each with a context and a device of its own.
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

#include "mscclpp/host/connection.hpp"
#include "mscclpp/host/context.hpp"
#include "mscclpp/host/endpoint.hpp"
#include "mscclpp/host/registered_memory.hpp"

namespace mscclpp::test {

using Ib = EndpointConfig::Ib;
using Bytes = std::vector<unsigned char>;

inline Bytes randomBytes(std::size_t size, unsigned seed) {
  Bytes bytes(size);
  std::mt19937 generator(seed);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(generator());
  return bytes;
}

/// One end: what it registers goes by the transport of its own device.
struct End {
  std::shared_ptr<Context> context = Context::create();
  Transport transport;
  Endpoint endpoint;
  Connection connection;

  End(Transport ownTransport, const EndpointConfig& config) : transport(ownTransport) {
    EndpointConfig own = config;
    own.transport = ownTransport;
    own.device = DeviceType::CPU;
    endpoint = context->createEndpoint(own);
  }
  RegisteredMemory share(void* data, std::size_t size) { return context->registerMemory(data, size, transport); }
  template <typename T>
  RegisteredMemory share(std::vector<T>& data) {
    return share(data.data(), data.size() * sizeof(T));
  }
};

/// As the other end sees it.
inline RegisteredMemory travelled(const RegisteredMemory& memory) {
  return RegisteredMemory::deserialize(memory.serialize());
}

struct Link {
  End a;
  End b;

  explicit Link(const EndpointConfig& configA = {}, const EndpointConfig& configB = {})
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

/// Waits until the word is at least `value`, as a peer that waits for a signal does.
inline bool arrives(std::uint64_t& word, std::uint64_t value, std::chrono::seconds limit = std::chrono::seconds(20)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (std::atomic_ref(word).load(std::memory_order_acquire) < value) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

inline void shell(const std::string& command) {
  if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
}

/// Runs a command now and another at the end of the scope.
class Scoped {
 public:
  Scoped(const std::string& now, std::string later) : later_(std::move(later)) { shell(now); }
  ~Scoped() { static_cast<void>(std::system(later_.c_str()) == 0); }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;

 private:
  std::string later_;
};

}  // namespace mscclpp::test
