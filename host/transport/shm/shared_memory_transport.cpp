// Host memory of one machine: a memfd, fetched from its owner and mapped.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "host/memory/host_allocation.hpp"
#include "host/memory/memory_transport.hpp"
#include "host/transport/connection_base.hpp"
#include "host/transport/transport_backend.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

namespace {

class HostMapping : public Mapping {
 public:
  HostMapping(const MemoryHandle& handle, Deadline deadline) : Mapping(handle.allocationBytes) {
    const UniqueFd fd = FdServer::fetch(handle.fdKey(), deadline);
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0) throw SysError("fstat of a peer's memory", errno);
    // Size and seal together guarantee that no access within the mapping can fault later.
    const int seals = ::fcntl(fd.get(), F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || bytes() == 0 ||
        static_cast<std::uint64_t>(status.st_size) != bytes()) {
      throw Error("the size or the seals of the peer's memory are not those that it announced", ErrorCode::RemoteError);
    }
    void* mapped = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (mapped == MAP_FAILED) throw SysError("mapping a peer's memory", errno);
    base_ = static_cast<char*>(mapped);
  }
  ~HostMapping() override { ::munmap(base_, bytes()); }
};

/// Both sides are mapped here, so an operation has completed when it returns.
class SharedMemoryConnection : public ConnectionBase {
 public:
  using ConnectionBase::ConnectionBase;

  std::uint64_t completed() override { return issued(); }
  bool supportsWriteValue() const override { return true; }

 protected:
  void startWrite(const RegisteredMemory& dst, std::uint64_t dstOffset, const RegisteredMemory& src,
                  std::uint64_t srcOffset, std::uint64_t size) override {
    // memmove: on a connection to itself a rank may pass overlapping ranges.
    std::memmove(static_cast<char*>(dst.data()) + dstOffset, static_cast<const char*>(src.data()) + srcOffset, size);
  }

  void startUpdate(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t,
                   std::uint64_t newValue) override {
    auto* word = reinterpret_cast<std::uint64_t*>(static_cast<char*>(dst.data()) + dstOffset);
    std::atomic_ref(*word).store(newValue, std::memory_order_release);
  }
};

class SharedMemoryTransport : public TransportBackend {
 public:
  explicit SharedMemoryTransport(ExportTable& exports)
      : TransportBackend(Transport::SharedMemory, {.servesCpu = true, .servesGpu = false, .mapsMemory = true}),
        exports_(exports) {}

  ExportedMemory exportMemory(void* data, std::size_t size) override {
    auto allocation = HostAllocation::find(data, size);
    if (!allocation) {
      if (HostAllocation::find(data, 1)) {
        throw Error(
            "registerMemory: " + std::to_string(size) + " bytes exceed the HostBuffer that contains the pointer",
            ErrorCode::InvalidUsage);
      }
      throw NotShareableError(
          "registerMemory: Transport::SharedMemory needs memory inside a mscclpp::HostBuffer, since peers cannot map "
          "any other host memory; allocate it with HostBuffer, or register it with NoTransports for local use");
    }
    auto registration = exports_.exportAllocation(allocation->id(), [&] {
      return ExportTable::Descriptor{allocation->fd(), allocation};
    });
    MemoryHandle handle{};
    handle.kind = HandleKind::SharedMemoryFd;
    handle.transport = transport();
    handle.allocationBytes = allocation->bytes();
    handle.offset = static_cast<std::uint64_t>(static_cast<char*>(data) - allocation->base());
    handle.allocation = allocation->id();
    handle.setAccess(registration->key());
    return {handle, registration};
  }

  bool isAllocated(const MemoryHandle& handle, void* data) const override {
    const auto allocation = HostAllocation::find(data, 0);
    return allocation && allocation->id() == handle.allocation;
  }

  ImportedMemory importMemory(const MemoryHandle& handle, std::size_t size, Deadline deadline) override {
    if (handle.kind != HandleKind::SharedMemoryFd) throwUnknownHandle();
    checkBounds(handle, size);
    auto mapping = MappingTable::instance().findOrCreate(
        handle, -1, deadline, [&] { return std::make_shared<HostMapping>(handle, deadline); });
    return {mapping->base() + handle.offset, mapping};
  }

  void importLocalMemory(const MemoryHandle& handle, void* data, std::size_t) override {
    if (!isAllocated(handle, data)) {
      throw Error(
          "the memory was freed by its owner, a rank of this process; keep its HostBuffer while peers may map it",
          ErrorCode::RemoteError);
    }
  }

  std::shared_ptr<ConnectionBase> connect(std::shared_ptr<Context> context, const Endpoint& local,
                                          const Endpoint& remote, Deadline) override {
    return std::make_shared<SharedMemoryConnection>(std::move(context), local, remote);
  }

 private:
  ExportTable& exports_;
};

}  // namespace

std::unique_ptr<TransportBackend> makeSharedMemoryTransport(ExportTable& exports) {
  return std::make_unique<SharedMemoryTransport>(exports);
}

}  // namespace mscclpp::detail
