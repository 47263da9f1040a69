#include "host/memory/memory_transport.hpp"

#include <poll.h>

#include <array>
#include <cstring>
#include <exception>

#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

void MemoryHandle::setAccess(const FdServer::Key& key) {
  static_assert(sizeof(key) <= sizeof(access));
  std::memcpy(access.data(), &key, sizeof(key));
}

FdServer::Key MemoryHandle::fdKey() const {
  FdServer::Key key;
  std::memcpy(&key, access.data(), sizeof(key));
  return key;
}

std::shared_ptr<FdServer::Registration> ExportTable::exportAllocation(const Id128& allocation,
                                                                      const std::function<Descriptor()>& open) {
  std::lock_guard lock(mutex_);
  if (auto existing = exports_[allocation].lock()) return existing;
  std::erase_if(exports_, [](const auto& entry) { return entry.second.expired(); });
  const auto server = FdServer::ofProcess();
  Descriptor source = open();
  auto registration = server->registerFd(source.fd, std::move(source.owner));
  exports_[allocation] = registration;
  return registration;
}

MappingTable& MappingTable::instance() {
  static auto* table = new MappingTable;  // never destroyed: mappings in static objects may outlive other statics
  return *table;
}

std::shared_ptr<Mapping> MappingTable::findOrCreate(const MemoryHandle& handle, int device, const Deadline& deadline,
                                                    const std::function<std::shared_ptr<Mapping>()>& open) {
  const Key key{handle.kind, handle.allocation, device};
  std::shared_ptr<Mapping> mapping;
  std::shared_ptr<Event> opened;
  std::unique_lock lock(mutex_);
  while (!(mapping = mappings_[key].lock())) {
    const auto other = opening_.find(key);
    if (other == opening_.end()) {
      opened = std::make_shared<Event>();
      opening_.emplace(key, opened);
      break;
    }
    // If the other thread fails, the next one tries.
    const auto otherOpened = other->second;
    lock.unlock();
    std::array<pollfd, 2> entries{pollfd{otherOpened->descriptor(), POLLIN, 0}, deadline.cancelEntry()};
    ::poll(entries.data(), entries.size(), deadline.pollTimeout());
    if (!otherOpened->isSet() && deadline.expired()) {
      throw Error("another thread of this process imports the same memory, whose owner has not answered for " +
                      deadline.elapsedText() + "; check that the owner is running",
                  ErrorCode::Timeout);
    }
    lock.lock();
  }
  lock.unlock();
  if (!mapping) {
    std::exception_ptr failure;
    try {
      mapping = open();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    opening_.erase(key);
    std::erase_if(mappings_, [](const auto& entry) { return entry.second.expired(); });
    if (mapping) mappings_[key] = mapping;
    lock.unlock();
    opened->set();
    if (failure) std::rethrow_exception(failure);
  }
  if (mapping->bytes() != handle.allocationBytes) {
    throw Error("two registrations of one allocation of a peer differ in its size", ErrorCode::RemoteError);
  }
  return mapping;
}

Deadline peerReplyDeadline() {
  return Deadline::after(env()->bootstrapTimeout);
}

void checkBounds(const MemoryHandle& handle, std::size_t size) {
  if (handle.offset > handle.allocationBytes || size > handle.allocationBytes - handle.offset) {
    throw Error("these bytes are not a serialised RegisteredMemory: the memory exceeds its allocation",
                ErrorCode::InvalidUsage);
  }
}

void throwUnknownHandle() {
  throw Error("the memory was registered by a newer library; use the same one on every rank", ErrorCode::InvalidUsage);
}

}  // namespace mscclpp::detail
