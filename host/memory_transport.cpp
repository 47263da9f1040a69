#include "memory_transport.hpp"

#include <cstring>

#include "mscclpp/host/env.hpp"
#include "mscclpp/host/error.hpp"

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

std::shared_ptr<FdServer::Offer> OfferTable::offer(const Id128& allocation, const std::function<Source()>& open) {
  std::lock_guard lock(mutex_);
  if (auto existing = offers_[allocation].lock()) return existing;
  std::erase_if(offers_, [](const auto& entry) { return entry.second.expired(); });
  auto server = server_.lock();
  if (!server) {
    server = FdServer::create();
    server_ = server;
  }
  Source source = open();
  auto offer = server->offer(source.fd, std::move(source.owner));
  offers_[allocation] = offer;
  return offer;
}

MappingTable& MappingTable::instance() {
  static auto* table = new MappingTable;  // never destroyed: mappings in static objects may outlive other statics
  return *table;
}

std::shared_ptr<Mapping> MappingTable::find(const MemoryHandle& handle, int device,
                                            const std::function<std::shared_ptr<Mapping>()>& open) {
  const Key key{handle.kind, handle.allocation, device};
  // The lock is held while mapping, so that two threads do not map the same allocation twice.
  std::lock_guard lock(mutex_);
  auto mapping = mappings_[key].lock();
  if (!mapping) {
    std::erase_if(mappings_, [](const auto& entry) { return entry.second.expired(); });
    mapping = open();
    mappings_[key] = mapping;
  }
  if (mapping->bytes() != handle.allocationBytes) {
    throw Error("a peer describes one of its allocations in two ways", ErrorCode::RemoteError);
  }
  return mapping;
}

Deadline answerDeadline() {
  return Deadline::after(env()->bootstrapTimeout);
}

void checkBounds(const MemoryHandle& handle, std::size_t size) {
  if (handle.offset > handle.allocationBytes || size > handle.allocationBytes - handle.offset) {
    throw Error("these bytes are not a serialised RegisteredMemory: the memory exceeds its allocation",
                ErrorCode::InvalidUsage);
  }
}

}  // namespace mscclpp::detail
