#include "mscclpp/host/transport/connection.hpp"

#include <atomic>
#include <string>

#include "host/transport/connection_base.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/transport/context.hpp"

namespace mscclpp {

namespace {

constexpr std::chrono::seconds defaultFlushTimeout{30};

}  // namespace

detail::ConnectionBase& Connection::implementation() const {
  if (!base_) {
    throw Error("this Connection is empty: take one from Communicator::connect or Context::connect",
                ErrorCode::InvalidUsage);
  }
  return *base_;
}

void Connection::write(const RegisteredMemory& dst, std::uint64_t dstOffset, const RegisteredMemory& src,
                       std::uint64_t srcOffset, std::uint64_t size) {
  auto& connection = implementation();
  connection.checkDestination(dst, dstOffset, size);
  connection.checkSource(src, srcOffset, size);
  if (size != 0) connection.write(dst, dstOffset, src, srcOffset, size);
}

void Connection::updateAndSync(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t* src,
                               std::uint64_t newValue) {
  auto& connection = implementation();
  connection.checkDestination(dst, dstOffset, sizeof(newValue));
  // The owner's address: memory behind a network has no local one, and mappings preserve the alignment.
  if ((reinterpret_cast<std::uintptr_t>(dst.originalDataPtr()) + dstOffset) % sizeof(newValue) != 0) {
    throw Error("Connection::updateAndSync: the destination must be aligned to 8 bytes", ErrorCode::InvalidUsage);
  }
  if (src == nullptr) throw Error("Connection::updateAndSync: src must not be null", ErrorCode::InvalidUsage);
  const std::uint64_t oldValue = std::atomic_ref(*src).exchange(newValue, std::memory_order_relaxed);
  try {
    connection.updateAndSync(dst, dstOffset, oldValue, newValue);
  } catch (...) {
    // Restores the value that the destination holds, from which the next update starts.
    std::atomic_ref(*src).store(oldValue, std::memory_order_relaxed);
    throw;
  }
}

void Connection::flush(std::int64_t timeoutUsec) {
  implementation().flush(timeoutUsec < 0 ? defaultFlushTimeout : std::chrono::microseconds(timeoutUsec));
}

std::uint64_t Connection::issued() const {
  return implementation().issued();
}
std::uint64_t Connection::completed() {
  return implementation().completed();
}
bool Connection::storeWhenComplete(std::uint64_t* word, std::uint64_t value) {
  return implementation().storeWhenComplete(word, value);
}

bool Connection::supportsWriteValue() const {
  return implementation().supportsWriteValue();
}
void Connection::writeValue(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t value) {
  if (!supportsWriteValue()) {
    throw Error("Connection::writeValue: connections over " + nameOf(transport()) + " do not write values; use write",
                ErrorCode::InvalidUsage);
  }
  updateAndSync(dst, dstOffset, &value, value);
}

void Connection::beginBatch() {
  implementation().beginBatch();
}
void Connection::endBatch() {
  implementation().endBatch();
}

Transport Connection::transport() const {
  return implementation().local().transport();
}
Transport Connection::remoteTransport() const {
  return implementation().remote().transport();
}
std::shared_ptr<Context> Connection::context() const {
  return implementation().context();
}
const Device& Connection::localDevice() const {
  return implementation().local().device();
}
int Connection::getMaxWriteQueueSize() const {
  return implementation().local().maxWriteQueueSize();
}

}  // namespace mscclpp
