// Host memory of one machine: memfd, fetched from its owner and mapped.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "../connection_base.hpp"
#include "../host_allocation.hpp"
#include "../memory_transport.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp::detail {

namespace {

class HostMapping : public Mapping {
 public:
  HostMapping(const MemoryHandle& handle, Deadline deadline) : Mapping(handle.allocationBytes) {
    const UniqueFd fd = FdServer::fetch(handle.fdKey(), deadline);
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0) throw SysError("fstat of a peer's memory", errno);
    // Size and seal together promise that no access within the mapping can fault later.
    const int seals = ::fcntl(fd.get(), F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || bytes() == 0 ||
        static_cast<std::uint64_t>(status.st_size) != bytes()) {
      throw Error("the memory that the peer offers is not what it announced", ErrorCode::RemoteError);
    }
    void* mapped = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (mapped == MAP_FAILED) throw SysError("mapping a peer's memory", errno);
    base_ = static_cast<char*>(mapped);
  }
  ~HostMapping() override { ::munmap(base_, bytes()); }
};

/// Both sides are mapped here, so an operation is done when it returns.
class SharedMemoryConnection : public ConnectionBase {
 public:
  using ConnectionBase::ConnectionBase;

  std::uint64_t completed() override { return issued(); }
  bool writesValues() const override { return true; }

 protected:
  void startWrite(const RegisteredMemory& dst, std::uint64_t dstOffset, const RegisteredMemory& src,
                  std::uint64_t srcOffset, std::uint64_t size) override {
    // memmove: on a connection to itself a rank may name overlapping ranges.
    std::memmove(static_cast<char*>(dst.data()) + dstOffset, static_cast<const char*>(src.data()) + srcOffset, size);
  }

  void startUpdate(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t,
                   std::uint64_t newValue) override {
    auto* word = reinterpret_cast<std::uint64_t*>(static_cast<char*>(dst.data()) + dstOffset);
    std::atomic_ref(*word).store(newValue, std::memory_order_release);
  }
};

}  // namespace

SharedPiece shareHostMemory(void* data, std::size_t size, OfferTable& offers) {
  auto allocation = HostAllocation::find(data, size);
  if (!allocation) {
    throw Error(
        "registerMemory: Transport::SharedMemory needs memory inside a mscclpp::HostBuffer, since peers cannot map any "
        "other host memory; allocate it with HostBuffer, or register it with NoTransports for local use",
        ErrorCode::InvalidUsage);
  }
  auto offer = offers.offer(allocation->id(), [&] { return OfferTable::Source{allocation->fd(), allocation}; });
  MemoryHandle handle{};
  handle.kind = HandleKind::SharedMemoryFd;
  handle.transport = Transport::SharedMemory;
  handle.allocationBytes = allocation->bytes();
  handle.offset = static_cast<std::uint64_t>(static_cast<char*>(data) - allocation->base());
  handle.allocation = allocation->id();
  handle.setAccess(offer->key());
  return {{handle}, offer};
}

MappedPiece mapHostMemory(const MemoryHandle& handle, std::size_t size, Deadline deadline) {
  checkBounds(handle, size);
  auto mapping =
      MappingTable::instance().find(handle, -1, [&] { return std::make_shared<HostMapping>(handle, deadline); });
  return {mapping->base() + handle.offset, mapping};
}

std::shared_ptr<const void> adoptHostMemory(void* data, std::size_t size, const std::vector<MemoryHandle>& handles) {
  auto allocation = HostAllocation::find(data, size);
  for (const MemoryHandle& handle : handles) {
    if (handle.kind != HandleKind::SharedMemoryFd) continue;
    // Another buffer may lie at the old address.
    if (!allocation || allocation->id() != handle.allocation) {
      throw Error("the memory was freed by its owner, a rank of this process; keep its HostBuffer while peers may ask",
                  ErrorCode::RemoteError);
    }
  }
  return allocation;
}

std::shared_ptr<ConnectionBase> connectSharedMemory(std::shared_ptr<Context> context, const Endpoint& local,
                                                    const Endpoint& remote) {
  return std::make_shared<SharedMemoryConnection>(std::move(context), local, remote);
}

}  // namespace mscclpp::detail
