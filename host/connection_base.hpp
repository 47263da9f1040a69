// What a transport implements to be a connection. Connection has checked the arguments.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "mscclpp/host/endpoint.hpp"
#include "mscclpp/host/registered_memory.hpp"

namespace mscclpp {
class Context;
}

namespace mscclpp::detail {

class ConnectionBase {
 public:
  ConnectionBase(std::shared_ptr<Context> context, const Endpoint& local, const Endpoint& remote)
      : context_(std::move(context)), local_(local), remote_(remote) {}
  virtual ~ConnectionBase() = default;
  ConnectionBase(const ConnectionBase&) = delete;
  ConnectionBase& operator=(const ConnectionBase&) = delete;

  virtual void write(const RegisteredMemory& dst, std::uint64_t dstOffset, const RegisteredMemory& src,
                     std::uint64_t srcOffset, std::uint64_t size) = 0;
  virtual void updateAndSync(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t newValue) = 0;
  virtual void flush(std::chrono::microseconds timeout) = 0;

  const std::shared_ptr<Context>& context() const noexcept { return context_; }
  const Endpoint& local() const noexcept { return local_; }
  const Endpoint& remote() const noexcept { return remote_; }

 private:
  std::shared_ptr<Context> context_;
  Endpoint local_;
  Endpoint remote_;
};

std::shared_ptr<ConnectionBase> connectSharedMemory(std::shared_ptr<Context> context, const Endpoint& local,
                                                    const Endpoint& remote);

}  // namespace mscclpp::detail
