#include "mscclpp/host/transport/registered_memory.hpp"

#include <algorithm>
#include <exception>
#include <string>

#include "host/base/byte_stream.hpp"
#include "host/base/process_identity.hpp"
#include "host/memory/host_allocation.hpp"
#include "host/memory/local_registrations.hpp"
#include "host/transport/memory_registration.hpp"
#include "host/transport/transport_table.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp {

namespace detail {

namespace {

constexpr WireFormat format{"RegisteredMemory", 0x4d454d52, 3};
// Far more than there are kinds: a larger number is invalid.
constexpr std::uint32_t maxHandles = 16;

TransportFlags flagsOf(const std::vector<MemoryHandle>& handles) {
  TransportFlags flags;
  for (const MemoryHandle& handle : handles) flags |= handle.transport;
  return flags;
}

std::uint32_t bitsOf(TransportFlags flags) {
  return static_cast<std::uint32_t>(flags.toBitset().to_ulong());
}

// The address is taken from this process's table, never from the received bytes.
void* findOwnMemory(const MemoryRegistration& memory) {
  const auto own = findLocalRegistration(memory.id);
  if (!own) {
    throw Error(
        "the memory was freed or deregistered by its owner, a rank of this process; keep its RegisteredMemory "
        "while peers may map it",
        ErrorCode::RemoteError);
  }
  if (reinterpret_cast<std::uint64_t>(own->data) != memory.address || own->size != memory.size) {
    throw Error(
        "these bytes are not a serialised RegisteredMemory: this process registered that memory with another "
        "address or size",
        ErrorCode::InvalidUsage);
  }
  return own->data;
}

void importLocal(const MemoryRegistration& memory) {
  for (const MemoryHandle& handle : memory.handles) {
    TransportTable::forImport().find(handle.transport)->importLocalMemory(handle, memory.data, memory.size);
  }
}

// A peer that cannot map the memory may still reach it by another transport, if it was registered for one.
void importFromPeer(MemoryRegistration& memory, const Deadline& deadline) {
  const TransportTable& table = TransportTable::forImport();
  std::exception_ptr failure;
  if (memory.hostHash == hostHash()) {
    for (const MemoryHandle& handle : memory.handles) {
      TransportBackend& backend = *table.find(handle.transport);
      if (!backend.properties().mapsMemory) continue;
      try {
        auto imported = backend.importMemory(handle, memory.size, deadline);
        memory.data = imported.data;
        memory.owners.push_back(std::move(imported.owner));
        return;
      } catch (const BaseError&) {
        if (!failure) failure = std::current_exception();
      }
    }
  } else if ((memory.transports & table.mapping()).any()) {
    failure = std::make_exception_ptr(NotShareableError(
        "the memory was registered on another host, where only " + nameOf(memory.transports) +
        " reaches it; if this is the same host, set MSCCLPP_HOSTID to the same text for all of its ranks"));
  }
  memory.transports &= ~table.mapping();
  if (failure && memory.transports.none()) std::rethrow_exception(failure);
}

}  // namespace

std::vector<char> MemoryRegistration::serialize() const {
  ByteWriter writer(format);
  writer.put(hostHash).put(process).put(address).put(size).put(bitsOf(flagsOf(handles)));
  writer.put(static_cast<std::uint32_t>(handles.size()));
  for (const MemoryHandle& handle : handles) writer.put(handle);
  writer.put(id);
  return writer.finish();
}

MemoryRegistration MemoryRegistration::deserialize(const std::vector<char>& bytes) {
  ByteReader reader(bytes, format);
  MemoryRegistration memory;
  memory.hostHash = reader.get<std::uint64_t>();
  memory.process = reader.get<Id128>();
  memory.address = reader.get<std::uint64_t>();
  memory.size = reader.get<std::uint64_t>();
  const auto transports = reader.get<std::uint32_t>();
  const auto handles = reader.get<std::uint32_t>();
  if (handles > maxHandles) reader.fail("a field is out of range");
  for (std::uint32_t i = 0; i < handles; ++i) {
    const auto& handle = memory.handles.emplace_back(reader.get<MemoryHandle>());
    if (handle.transport <= Transport::Unknown || handle.transport >= Transport::NumTransports) {
      reader.fail("a handle names a transport that does not exist");
    }
  }
  memory.id = reader.get<Id128>();
  reader.expectEnd();
  memory.transports = flagsOf(memory.handles);
  if (bitsOf(memory.transports) != transports) reader.fail("the transports and their handles differ");
  if (memory.size == 0 || memory.address + memory.size < memory.address) reader.fail("a field is out of range");
  return memory;
}

RegisteredMemory deserializeMemory(const std::vector<char>& bytes, const Deadline& deadline) {
  auto memory = std::make_shared<MemoryRegistration>(MemoryRegistration::deserialize(bytes));
  if (memory->process == processId()) {
    memory->data = findOwnMemory(*memory);
    memory->owners.push_back(HostAllocation::find(memory->data, memory->size));
    importLocal(*memory);
  } else {
    importFromPeer(*memory, deadline);
  }
  return RegisteredMemory(std::move(memory));
}

void enableDeviceAccess(const RegisteredMemory& memory) {
  const auto& registration = memory.registration();
  if (registration && registration->process == processId()) importLocal(*registration);
}

bool isAllocated(const RegisteredMemory& memory) {
  const MemoryRegistration& registration = registrationOf(memory);
  return std::all_of(registration.handles.begin(), registration.handles.end(), [&](const MemoryHandle& handle) {
    return TransportTable::forImport().find(handle.transport)->isAllocated(handle, registration.data);
  });
}

void throwEmptyMemory() {
  throw Error("this RegisteredMemory is empty: take one from Context::registerMemory or recvMemory",
              ErrorCode::InvalidUsage);
}

}  // namespace detail

void* RegisteredMemory::data() const noexcept {
  return registration_ ? registration_->data : nullptr;
}
std::size_t RegisteredMemory::size() const noexcept {
  return registration_ ? registration_->size : 0;
}
void* RegisteredMemory::originalDataPtr() const {
  return reinterpret_cast<void*>(detail::registrationOf(*this).address);
}
TransportFlags RegisteredMemory::transports() const {
  return detail::registrationOf(*this).transports;
}
std::vector<char> RegisteredMemory::serialize() const {
  return detail::registrationOf(*this).serialize();
}

RegisteredMemory RegisteredMemory::deserialize(const std::vector<char>& data) {
  return detail::deserializeMemory(data, detail::peerReplyDeadline());
}

}  // namespace mscclpp
