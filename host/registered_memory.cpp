#include "mscclpp/host/registered_memory.hpp"

#include <exception>
#include <string>

#include "byte_stream.hpp"
#include "gpu_backend.hpp"
#include "memory_transport.hpp"
#include "mscclpp/host/error.hpp"
#include "network.hpp"
#include "process_identity.hpp"
#include "registered_memory_form.hpp"
#include "registered_memory_state.hpp"

namespace mscclpp {

namespace {

constexpr detail::Form form{"RegisteredMemory", 0x4d454d52, 2};
constexpr TransportFlags mappableTransports = Transport::CudaIpc | Transport::SharedMemory;
// Far more than there are kinds: what is larger is garbage.
constexpr std::uint32_t maxHandles = 16;

TransportFlags flagsOf(std::uint32_t bits) {
  TransportFlags flags;
  for (int index = 0; index < static_cast<int>(Transport::NumTransports); ++index) {
    if ((bits >> index & 1) != 0) flags |= static_cast<Transport>(index);
  }
  return flags;
}

detail::MappedPiece mapPiece(const detail::MemoryHandle& handle, std::size_t size, detail::Deadline deadline) {
  switch (handle.kind) {
    case detail::HandleKind::SharedMemoryFd:
      return detail::mapHostMemory(handle, size, deadline);
    case detail::HandleKind::CudaFd:
    case detail::HandleKind::CudaIpc:
      return detail::mapGpuMemory(handle, size, deadline);
    case detail::HandleKind::Verbs:
    case detail::HandleKind::Tcp:
      break;
  }
  throw Error("the memory was registered by a newer library; use the same one on every rank", ErrorCode::InvalidUsage);
}

}  // namespace

namespace detail {

std::vector<char> writeMemory(const MemoryForm& memory) {
  ByteWriter writer(form);
  writer.put(memory.hostHash).put(memory.process).put(memory.address).put(memory.size);
  writer.put(static_cast<std::uint32_t>(memory.transports.toBitset().to_ulong()));
  writer.put(static_cast<std::uint32_t>(memory.handles.size()));
  for (const MemoryHandle& handle : memory.handles) writer.put(handle);
  return writer.finish();
}

MemoryForm readMemory(const std::vector<char>& bytes) {
  ByteReader reader(bytes, form);
  MemoryForm memory;
  memory.hostHash = reader.get<std::uint64_t>();
  memory.process = reader.get<Id128>();
  memory.address = reader.get<std::uint64_t>();
  memory.size = reader.get<std::uint64_t>();
  const auto transports = reader.get<std::uint32_t>();
  memory.transports = flagsOf(transports);
  if (memory.transports.toBitset().to_ulong() != transports) reader.fail("it names transports that do not exist");
  const auto handles = reader.get<std::uint32_t>();
  if (handles > maxHandles) reader.fail("a field is out of range");
  TransportFlags reached;
  for (std::uint32_t i = 0; i < handles; ++i) {
    const auto& handle = memory.handles.emplace_back(reader.get<MemoryHandle>());
    if (handle.transport <= Transport::Unknown || handle.transport >= Transport::NumTransports ||
        !memory.transports.has(handle.transport)) {
      reader.fail("a handle is of no transport that they name");
    }
    reached |= handle.transport;
  }
  reader.end();
  if ((memory.transports & networkTransports & ~reached).any()) reader.fail("a transport has no handle");
  if (memory.size == 0 || memory.address + memory.size < memory.address) reader.fail("a field is out of range");
  return memory;
}

void makeReachable(const RegisteredMemory& memory) {
  if (memory.data() == nullptr || !memory.transports().has(Transport::CudaIpc)) return;
  if (readMemory(memory.serialize()).process != processId()) return;
  static_cast<void>(adoptGpuMemory(memory.data(), memory.size()));
}

}  // namespace detail

void RegisteredMemory::throwEmpty() {
  throw Error("this RegisteredMemory is empty: take one from Context::registerMemory or recvMemory",
              ErrorCode::InvalidUsage);
}

void* RegisteredMemory::data() const noexcept {
  return state_ ? state_->data : nullptr;
}
std::size_t RegisteredMemory::size() const noexcept {
  return state_ ? state_->size : 0;
}
void* RegisteredMemory::originalDataPtr() const {
  return reinterpret_cast<void*>(state().originalAddress);
}
TransportFlags RegisteredMemory::transports() const {
  return state().transports;
}
std::vector<char> RegisteredMemory::serialize() const {
  return state().serialized;
}

RegisteredMemory RegisteredMemory::deserialize(const std::vector<char>& data) {
  return deserialize(data, detail::answerDeadline());
}

RegisteredMemory RegisteredMemory::deserialize(const std::vector<char>& data, const detail::Deadline& deadline) {
  const detail::MemoryForm memory = detail::readMemory(data);
  auto state = std::make_shared<State>();
  state->originalAddress = memory.address;
  state->size = memory.size;
  state->transports = memory.transports;
  state->handles = memory.handles;
  state->serialized = data;

  if (memory.process == detail::processId()) {
    state->data = reinterpret_cast<void*>(memory.address);
    if (memory.transports.has(Transport::CudaIpc)) {
      state->owners.push_back(detail::adoptGpuMemory(state->data, state->size));
    }
    state->owners.push_back(detail::adoptHostMemory(state->data, state->size, state->handles));
    return RegisteredMemory(std::move(state));
  }

  // Whoever cannot map the memory may still reach it by another transport, if it was registered for one.
  std::exception_ptr failure;
  if (memory.hostHash == detail::hostHash()) {
    for (const detail::MemoryHandle& handle : memory.handles) {
      if (!mappableTransports.has(handle.transport)) continue;
      try {
        auto piece = mapPiece(handle, memory.size, deadline);
        state->data = piece.data;
        state->owners.push_back(std::move(piece.owner));
        return RegisteredMemory(std::move(state));
      } catch (const BaseError&) {
        if (!failure) failure = std::current_exception();
      }
    }
  } else if ((memory.transports & mappableTransports).any()) {
    failure = std::make_exception_ptr(
        Error("the memory was registered on another host, where only " + nameOf(memory.transports) +
                  " reaches it; if this is the same host, set MSCCLPP_HOSTID to the same text for all of its ranks",
              ErrorCode::InvalidUsage));
  }
  state->transports &= ~mappableTransports;
  if (failure && state->transports.none()) std::rethrow_exception(failure);
  return RegisteredMemory(std::move(state));
}

}  // namespace mscclpp
