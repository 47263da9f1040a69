// How memory becomes reachable by other processes: what a transport adds to a serialised registration, and its reverse.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "deadline.hpp"
#include "fd_server.hpp"
#include "mscclpp/host/transport.hpp"
#include "process_identity.hpp"

namespace mscclpp::detail {

enum class HandleKind : std::uint32_t {
  SharedMemoryFd = 1,  ///< a memfd, fetched from its owner
  CudaFd = 2,          ///< a cuMem allocation as a POSIX descriptor, fetched from its owner
  CudaIpc = 3,         ///< a cudaMalloc allocation as a runtime IPC handle
  Verbs = 4,           ///< a memory region of a verbs device
  Tcp = 5,             ///< a registration that messages over TCP name
};

/// One way to reach one piece of memory, as it travels. Plain data, the same size for every kind.
struct MemoryHandle {
  HandleKind kind;
  Transport transport;
  std::uint64_t allocationBytes;
  /// Of the registered memory within the allocation.
  std::uint64_t offset;
  /// Unique among allocations, so that registrations of one allocation share one mapping.
  Id128 allocation;
  /// The server and token of a descriptor; the runtime IPC handle; or what a network needs.
  std::array<std::uint8_t, 64> access;

  void setAccess(const FdServer::Key& key);
  FdServer::Key fdKey() const;
};

/// A registration by its owner.
struct SharedPiece {
  std::vector<MemoryHandle> handles;
  /// Keeps the handles valid.
  std::shared_ptr<const void> owner;
};

/// A registration mapped by a peer.
struct MappedPiece {
  void* data;
  /// Keeps it mapped.
  std::shared_ptr<const void> owner;
};

/// What one context has on offer: one descriptor for an allocation, however often it is registered.
class OfferTable {
 public:
  struct Source {
    int fd;
    std::shared_ptr<const void> owner;
  };
  /// `open` is called if the allocation is not on offer yet.
  std::shared_ptr<FdServer::Offer> offer(const Id128& allocation, const std::function<Source()>& open);

 private:
  std::mutex mutex_;
  std::weak_ptr<FdServer> server_;
  std::map<Id128, std::weak_ptr<FdServer::Offer>> offers_;
};

/// Another process's allocation in this address space; unmapped by the destructor.
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

/// The mappings of this process, each made once and shared while in use. It is per process as the address space is,
/// and keeps nothing mapped itself.
class MappingTable {
 public:
  static MappingTable& instance();

  /// The mapping of the handle's allocation for a device (-1: the CPU); `open` makes it if there is none.
  std::shared_ptr<Mapping> find(const MemoryHandle& handle, int device,
                                const std::function<std::shared_ptr<Mapping>()>& open);

 private:
  using Key = std::tuple<HandleKind, Id128, int>;
  std::mutex mutex_;
  std::map<Key, std::weak_ptr<Mapping>> mappings_;
};

/// By when a peer must answer that is asked now: after MSCCLPP_BOOTSTRAP_TIMEOUT, as for any word from a peer.
Deadline answerDeadline();

/// Host memory. `share` throws Error(InvalidUsage) unless it lies in a HostBuffer; `adopt` is for memory of this very
/// process: it returns what keeps it alive, null if that is unknown, and throws Error(RemoteError) if a handle says that
/// it was in a HostBuffer which has gone.
SharedPiece shareHostMemory(void* data, std::size_t size, OfferTable& offers);
MappedPiece mapHostMemory(const MemoryHandle& handle, std::size_t size, Deadline deadline);
std::shared_ptr<const void> adoptHostMemory(void* data, std::size_t size, const std::vector<MemoryHandle>& handles);

/// Throws Error(InvalidUsage) unless `size` bytes at the handle's offset lie within its allocation.
void checkBounds(const MemoryHandle& handle, std::size_t size);

}  // namespace mscclpp::detail
