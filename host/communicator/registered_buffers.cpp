#include "mscclpp/host/communicator/registered_buffers.hpp"

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "host/base/process_identity.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp {

struct RegisteredBuffers::Entry {
  RegisteredBuffer buffer;
  std::uintptr_t address;  ///< of this rank's buffer
  std::uint64_t number;    ///< in the order of registration
};

// By address, then by number: several registrations may begin at the same address.
class RegisteredBuffers::Table {
 public:
  std::shared_ptr<const Entry> add(RegisteredBuffer buffer) {
    const auto address = reinterpret_cast<std::uintptr_t>(buffer.local());
    const std::lock_guard lock(mutex_);
    auto entry = std::make_shared<const Entry>(Entry{std::move(buffer), address, ++added_});
    if (entry->buffer.bytes() > 0) entries_.emplace(std::pair(entry->address, entry->number), entry);
    return entry;
  }

  void remove(const Entry& entry) {
    if (!owner_.isCurrent()) return;  // the lock may have been held at the fork
    const std::lock_guard lock(mutex_);
    entries_.erase({entry.address, entry.number});
  }

  std::shared_ptr<const Entry> find(std::uintptr_t address, std::size_t bytes) const {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const Entry> found;
    // All that begin at or before the address: any of them may be long enough.
    const auto end = entries_.upper_bound({address, UINT64_MAX});
    for (auto entry = entries_.begin(); entry != end; ++entry) {
      const std::size_t offset = address - entry->second->address;
      const std::size_t size = entry->second->buffer.bytes();
      const bool contains = offset <= size && bytes <= size - offset && offset < size;
      if (contains && (found == nullptr || entry->second->number > found->number)) found = entry->second;
    }
    return found;
  }

 private:
  const detail::OwnerProcess owner_;
  mutable std::mutex mutex_;
  std::map<std::pair<std::uintptr_t, std::uint64_t>, std::shared_ptr<const Entry>> entries_;
  std::uint64_t added_ = 0;
};

RegisteredBuffers::Handle::Handle() noexcept = default;
RegisteredBuffers::Handle::Handle(std::shared_ptr<Table> table, std::shared_ptr<const Entry> entry) noexcept
    : table_(std::move(table)), entry_(std::move(entry)) {}
RegisteredBuffers::Handle::Handle(Handle&& other) noexcept = default;
RegisteredBuffers::Handle& RegisteredBuffers::Handle::operator=(Handle&& other) noexcept {
  if (this != &other) {
    end();
    table_ = std::move(other.table_);
    entry_ = std::move(other.entry_);
  }
  return *this;
}
RegisteredBuffers::Handle::~Handle() {
  end();
}

void RegisteredBuffers::Handle::end() noexcept {
  if (entry_ == nullptr) return;
  table_->remove(*entry_);
  entry_.reset();
  table_.reset();
}

const RegisteredBuffer& RegisteredBuffers::Handle::buffer() const {
  if (entry_ == nullptr) {
    throw Error("RegisteredBuffers: the handle keeps no registration; it was moved from", ErrorCode::InvalidUsage);
  }
  return entry_->buffer;
}

RegisteredBuffers::RegisteredBuffers() : table_(std::make_shared<Table>()) {}
RegisteredBuffers::~RegisteredBuffers() = default;
RegisteredBuffers::RegisteredBuffers(RegisteredBuffers&&) noexcept = default;
RegisteredBuffers& RegisteredBuffers::operator=(RegisteredBuffers&&) noexcept = default;

RegisteredBuffers::Handle RegisteredBuffers::add(RegisteredBuffer buffer) {
  buffer.requireEqualBytes();
  return {table_, table_->add(std::move(buffer))};
}

std::optional<RegisteredBuffers::Match> RegisteredBuffers::find(const void* pointer, std::size_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const auto entry = table_->find(address, bytes);
  if (entry == nullptr) return std::nullopt;
  if (!entry->buffer.isAllocated()) {
    throw Error("RegisteredBuffers: the memory of a registered buffer of " + std::to_string(entry->buffer.bytes()) +
                    " bytes has been freed; end its registration before the memory is freed, on all ranks",
                ErrorCode::InvalidUsage);
  }
  return Match{&entry->buffer, address - entry->address};
}

}  // namespace mscclpp
