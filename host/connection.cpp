#include "mscclpp/host/connection.hpp"

#include <atomic>
#include <string>

#include "connection_base.hpp"
#include "mscclpp/host/context.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp {

namespace {

constexpr std::chrono::seconds defaultFlushTimeout{30};

}  // namespace

detail::ConnectionBase& Connection::base() const {
  if (!base_) {
    throw Error("this Connection is empty: take one from Communicator::connect or Context::connect",
                ErrorCode::InvalidUsage);
  }
  return *base_;
}

void Connection::write(const RegisteredMemory& dst, std::uint64_t dstOffset, const RegisteredMemory& src,
                       std::uint64_t srcOffset, std::uint64_t size) {
  auto& connection = base();
  connection.checkDestination(dst, dstOffset, size);
  connection.checkSource(src, srcOffset, size);
  if (size != 0) connection.write(dst, dstOffset, src, srcOffset, size);
}

void Connection::updateAndSync(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t* src,
                               std::uint64_t newValue) {
  auto& connection = base();
  connection.checkDestination(dst, dstOffset, sizeof(newValue));
  // Where it is mapped says nothing about memory that only a network reaches; mappings keep the alignment.
  if ((reinterpret_cast<std::uintptr_t>(dst.originalDataPtr()) + dstOffset) % sizeof(newValue) != 0) {
    throw Error("Connection::updateAndSync: the destination must be aligned to 8 bytes", ErrorCode::InvalidUsage);
  }
  if (src == nullptr) throw Error("Connection::updateAndSync: src must not be null", ErrorCode::InvalidUsage);
  const std::uint64_t oldValue = std::atomic_ref(*src).exchange(newValue, std::memory_order_relaxed);
  try {
    connection.updateAndSync(dst, dstOffset, oldValue, newValue);
  } catch (...) {
    // The next update starts from what the destination holds.
    std::atomic_ref(*src).store(oldValue, std::memory_order_relaxed);
    throw;
  }
}

void Connection::flush(std::int64_t timeoutUsec) {
  base().flush(timeoutUsec < 0 ? defaultFlushTimeout : std::chrono::microseconds(timeoutUsec));
}

std::uint64_t Connection::issued() const {
  return base().issued();
}
std::uint64_t Connection::completed() {
  return base().completed();
}
bool Connection::storeWhenComplete(std::uint64_t* word, std::uint64_t value) {
  return base().storeWhenComplete(word, value);
}

bool Connection::writesValues() const {
  return base().writesValues();
}
void Connection::writeValue(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t value) {
  if (!writesValues()) {
    throw Error("Connection::writeValue: connections over " + nameOf(transport()) + " do not write values; use write",
                ErrorCode::InvalidUsage);
  }
  updateAndSync(dst, dstOffset, &value, value);
}

void Connection::beginBatch() {
  base().beginBatch();
}
void Connection::endBatch() {
  base().endBatch();
}

Transport Connection::transport() const {
  return base().local().transport();
}
Transport Connection::remoteTransport() const {
  return base().remote().transport();
}
std::shared_ptr<Context> Connection::context() const {
  return base().context();
}
const Device& Connection::localDevice() const {
  return base().local().device();
}
int Connection::getMaxWriteQueueSize() const {
  return base().local().maxWriteQueueSize();
}

}  // namespace mscclpp
