#include "mscclpp/host/communicator/semaphore.hpp"

#include "host/base/byte_stream.hpp"
#include "host/memory/memory_transport.hpp"
#include "host/transport/context_state.hpp"
#include "host/transport/memory_registration.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/transport/context.hpp"

namespace mscclpp {

namespace {
constexpr detail::WireFormat stubFormat{"SemaphoreStub", 0x414d4553, 1};
}

SemaphoreStub::SemaphoreStub(const Connection& connection)
    : connection_(connection), device_(connection.localDevice()) {
  detail::ContextState& context = connection.context()->state();
  auto owner = context.allocateCounter(device_);
  std::uint64_t* counter = owner.get();
  memory_ = context.registerMemory(counter, sizeof(*counter), connection.transport(), std::move(owner));
}

std::vector<char> SemaphoreStub::serialize() const {
  detail::ByteWriter writer(stubFormat);
  writer.put(static_cast<std::uint32_t>(device_.type)).put(device_.id).putBytes(memory_.serialize());
  return writer.finish();
}

SemaphoreStub SemaphoreStub::deserialize(const std::vector<char>& data) {
  return deserializeBefore(data, detail::peerReplyDeadline());
}

SemaphoreStub SemaphoreStub::deserializeBefore(const std::vector<char>& data, const detail::Deadline& deadline) {
  detail::ByteReader reader(data, stubFormat);
  SemaphoreStub stub;
  stub.device_.type = reader.getEnum(static_cast<DeviceType>(static_cast<int>(DeviceType::GPU) + 1));
  stub.device_.id = reader.get<int>();
  const std::vector<char> memory = reader.getBytes();
  reader.expectEnd();
  stub.memory_ = detail::deserializeMemory(memory, deadline);
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
  if (remote.connection_ != Connection()) detail::enableDeviceAccess(remote_);  // of this process, not deserialised
}

}  // namespace mscclpp
