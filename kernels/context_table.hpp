// The contexts of algorithms: one for each communicator and key, made once.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mscclpp/host/communicator/communicator.hpp"

namespace mscclpp::kernels {

/// Contexts by communicator and key. Any thread may call any function. Ranks that are threads of one process can make
/// theirs together: no lock is held but that of their own communicator.
template <class Key, class Context>
class ContextTable {
 public:
  /// The context, or null if there is none.
  std::shared_ptr<Context> find(const std::shared_ptr<Communicator>& communicator, const Key& key) const {
    std::shared_ptr<Entry> entry;
    {
      const std::lock_guard lock(mutex_);
      const auto found = entries_.find(communicator);
      if (found == entries_.end()) return nullptr;
      entry = found->second;
    }
    const std::lock_guard lock(entry->mutex);
    const auto found = entry->contexts.find(key);
    return found == entry->contexts.end() ? nullptr : found->second;
  }

  /// The context; if there is none, the one that make() returns. Before the first of a communicator, begin() is called.
  /// If either throws, the next call repeats it.
  template <class Begin, class Make>
  std::shared_ptr<Context> findOrMake(const std::shared_ptr<Communicator>& communicator, const Key& key, Begin&& begin,
                                      Make&& make) {
    const std::shared_ptr<Entry> entry = entryOf(communicator);
    const std::lock_guard lock(entry->mutex);
    if (const auto found = entry->contexts.find(key); found != entry->contexts.end()) return found->second;
    if (!entry->hasBegun) begin();
    entry->hasBegun = true;
    return entry->contexts.emplace(key, make()).first->second;
  }

  void clear() {
    Entries released;  // destroyed without the lock: destructors of contexts may wait
    const std::lock_guard lock(mutex_);
    released.swap(entries_);
  }

 private:
  struct Entry {
    std::mutex mutex;
    bool hasBegun = false;
    std::unordered_map<Key, std::shared_ptr<Context>> contexts;
  };
  // By owner: the address of a communicator may be used again.
  using Entries = std::map<std::weak_ptr<Communicator>, std::shared_ptr<Entry>, std::owner_less<>>;

  std::shared_ptr<Entry> entryOf(const std::shared_ptr<Communicator>& communicator) {
    std::vector<std::shared_ptr<Entry>> released;
    const std::lock_guard lock(mutex_);
    if (const auto found = entries_.find(communicator); found != entries_.end()) return found->second;
    for (auto it = entries_.begin(); it != entries_.end();) {
      if (it->first.expired()) {
        released.push_back(std::move(it->second));
        it = entries_.erase(it);
      } else {
        ++it;
      }
    }
    return entries_.emplace(communicator, std::make_shared<Entry>()).first->second;
  }

  mutable std::mutex mutex_;
  Entries entries_;
};

}  // namespace mscclpp::kernels
