#include "mscclpp/host/semaphore.hpp"

#include "byte_stream.hpp"
#include "memory_transport.hpp"
#include "mscclpp/host/context.hpp"
#include "mscclpp/host/error.hpp"
#include "registered_memory_form.hpp"

namespace mscclpp {

namespace {
constexpr detail::Form form{"SemaphoreStub", 0x414d4553, 1};
}

SemaphoreStub::SemaphoreStub(const Connection& connection)
    : connection_(connection), device_(connection.localDevice()) {
  const auto context = connection.context();
  auto token = context->takeCounter(device_);
  std::uint64_t* counter = token.get();
  memory_ = context->registerMemory(counter, sizeof(*counter), connection.transport(), std::move(token));
}

std::vector<char> SemaphoreStub::serialize() const {
  detail::ByteWriter writer(form);
  writer.put(static_cast<std::uint32_t>(device_.type)).put(device_.id).putBytes(memory_.serialize());
  return writer.finish();
}

SemaphoreStub SemaphoreStub::deserialize(const std::vector<char>& data) {
  return deserialize(data, detail::answerDeadline());
}

SemaphoreStub SemaphoreStub::deserialize(const std::vector<char>& data, const detail::Deadline& deadline) {
  detail::ByteReader reader(data, form);
  SemaphoreStub stub;
  stub.device_.type = reader.getEnum(static_cast<DeviceType>(static_cast<int>(DeviceType::GPU) + 1));
  stub.device_.id = reader.get<int>();
  const std::vector<char> memory = reader.getBytes();
  reader.end();
  stub.memory_ = RegisteredMemory::deserialize(memory, deadline);
  if (stub.memory_.size() != sizeof(std::uint64_t)) reader.fail("its counter is not 8 bytes long");
  return stub;
}

Semaphore::Semaphore(const SemaphoreStub& local, const SemaphoreStub& remote, std::shared_ptr<WaitMonitor> monitor,
                     int rank, int peer)
    : Semaphore(local, remote) {
  monitor_ = std::move(monitor);
  rank_ = rank;
  peer_ = peer;
}

Semaphore::Semaphore(const SemaphoreStub& local, const SemaphoreStub& remote)
    : connection_(local.connection_), local_(local.memory_), remote_(remote.memory_) {
  if (connection_ == Connection()) {
    throw Error("Semaphore: the first stub must be the local one, made from a connection", ErrorCode::InvalidUsage);
  }
  if (remote.connection_ != Connection()) detail::makeReachable(remote_);  // of this process, and not deserialised
}

}  // namespace mscclpp
