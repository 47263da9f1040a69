#include "host/memory/local_registrations.hpp"

#include <map>
#include <mutex>

namespace mscclpp::detail {

namespace {

struct Table {
  std::mutex mutex;
  std::map<Id128, LocalRegistration> byId;
};

// Never destroyed: a registration with static storage may outlive any other static object.
Table& table() {
  static auto* instance = new Table;
  return *instance;
}

class Entry {
 public:
  Entry(const Id128& id, const LocalRegistration& memory) : id_(id) {
    std::lock_guard lock(table().mutex);
    table().byId.emplace(id, memory);
  }
  ~Entry() {
    if (!owner_.isCurrent()) return;  // the lock may have been held at the fork
    std::lock_guard lock(table().mutex);
    table().byId.erase(id_);
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

 private:
  const OwnerProcess owner_;
  const Id128 id_;
};

}  // namespace

std::shared_ptr<const void> addLocalRegistration(const Id128& id, const LocalRegistration& memory) {
  return std::make_shared<Entry>(id, memory);
}

std::optional<LocalRegistration> findLocalRegistration(const Id128& id) {
  std::lock_guard lock(table().mutex);
  const auto found = table().byId.find(id);
  if (found == table().byId.end()) return std::nullopt;
  return found->second;
}

}  // namespace mscclpp::detail
