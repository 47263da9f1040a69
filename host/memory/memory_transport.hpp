// What all transports need to share memory: the serialised handle, and the tables of exported and mapped memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "host/base/deadline.hpp"
#include "host/base/event.hpp"
#include "host/base/process_identity.hpp"
#include "host/memory/fd_server.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/base/transport.hpp"

namespace mscclpp::detail {

/// Memory of a kind that peers cannot map, or that a rank cannot reach, though the arguments are valid: the caller may
/// copy through other memory instead.
class NotShareableError : public Error {
 public:
  explicit NotShareableError(const std::string& message) : Error(message, ErrorCode::InvalidUsage) {}
};

enum class HandleKind : std::uint32_t {
  SharedMemoryFd = 1,  ///< a memfd, fetched from its owner
  CudaFd = 2,          ///< a cuMem allocation as a POSIX descriptor, fetched from its owner
  CudaIpc = 3,         ///< a cudaMalloc allocation as a runtime IPC handle
  Verbs = 4,           ///< a memory region of a verbs device
  Tcp = 5,             ///< a registration that TCP messages refer to
};

/// One method of accessing one memory range, as it is serialised. Plain data, the same size for every kind.
struct MemoryHandle {
  HandleKind kind;
  Transport transport;
  std::uint64_t allocationBytes;
  /// Offset of the registered memory within the allocation.
  std::uint64_t offset;
  /// Unique among allocations, so that registrations of one allocation share one mapping.
  Id128 allocation;
  /// The server and token of a descriptor; a runtime IPC handle; or the keys of a network.
  std::array<std::uint8_t, 64> access;

  void setAccess(const FdServer::Key& key);
  FdServer::Key fdKey() const;
};

/// Memory that peers can access over one transport, at its owner.
struct ExportedMemory {
  MemoryHandle handle;
  /// Keeps the handle valid; may be null.
  std::shared_ptr<const void> owner;
};

/// The same memory, mapped by a peer.
struct ImportedMemory {
  void* data;
  /// Keeps it mapped.
  std::shared_ptr<const void> owner;
};

/// The allocations that one context exports: one descriptor each, however often an allocation is registered.
class ExportTable {
 public:
  struct Descriptor {
    int fd;
    std::shared_ptr<const void> owner;
  };
  /// `open` is called if the allocation is not exported yet.
  std::shared_ptr<FdServer::Registration> exportAllocation(const Id128& allocation,
                                                           const std::function<Descriptor()>& open);

 private:
  std::mutex mutex_;
  std::map<Id128, std::weak_ptr<FdServer::Registration>> exports_;
};

/// Another process's allocation in this address space; the destructor unmaps it.
class Mapping {
 public:
  explicit Mapping(std::size_t bytes) : bytes_(bytes) {}
  virtual ~Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  char* base() const noexcept { return base_; }
  std::size_t bytes() const noexcept { return bytes_; }

 protected:
  char* base_ = nullptr;

 private:
  std::size_t bytes_;
};

/// The mappings of this process, each created once and shared while in use. The table belongs to the process, like the
/// address space, and does not keep anything mapped.
class MappingTable {
 public:
  static MappingTable& instance();

  /// The mapping of the handle's allocation for a device (-1: the CPU). If there is none, `open` creates it by
  /// `deadline`: it may wait for the allocation's owner, which delays no import of another allocation. Threads that
  /// need the same one wait for each other, each up to its own deadline, and throw Error(Timeout) then.
  std::shared_ptr<Mapping> findOrCreate(const MemoryHandle& handle, int device, const Deadline& deadline,
                                        const std::function<std::shared_ptr<Mapping>()>& open);

 private:
  using Key = std::tuple<HandleKind, Id128, int>;

  std::mutex mutex_;  // not held while `open` runs
  std::map<Key, std::weak_ptr<Mapping>> mappings_;
  std::map<Key, std::shared_ptr<Event>> opening_;  // those that a thread is creating; set when it has finished
};

/// The deadline for the reply to a request that is sent now: after MSCCLPP_BOOTSTRAP_TIMEOUT.
Deadline peerReplyDeadline();

/// Throws Error(InvalidUsage) unless `size` bytes at the handle's offset lie within its allocation.
void checkBounds(const MemoryHandle& handle, std::size_t size);
/// Throws Error(InvalidUsage) for a handle whose kind is unknown to its transport.
[[noreturn]] void throwUnknownHandle();

}  // namespace mscclpp::detail
