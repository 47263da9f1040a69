// What calls keep, by key, of which the ranks release together what was not used for the longest time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::kernels {

/// All ranks add their values in the same steps, so that a value has the same number on all of them. What a captured
/// graph uses on any rank stays: a graph may be launched at any time.
template <class Key, class Value>
class RecentlyUsed {
 public:
  struct Entry {
    Key key;
    Value value;
    std::uint64_t number;     ///< the same on all ranks, of no other entry of this table
    bool isCaptured = false;  ///< a graph of this rank uses it
  };

  /// most: so many entries may stay, beside those that graphs use.
  explicit RecentlyUsed(std::size_t most) : most_(most), limit_(most) {}
  RecentlyUsed(RecentlyUsed&&) = default;
  RecentlyUsed& operator=(RecentlyUsed&&) = default;

  std::size_t size() const noexcept { return places_.size(); }
  /// Least recently used first.
  const std::list<Entry>& entries() const noexcept { return entries_; }
  /// Null if there is none. Entries stay where they are until release() or replacement.
  Entry* find(const Key& key) {
    const auto place = places_.find(key);
    return place == places_.end() ? nullptr : &*place->second;
  }
  /// The entry with the least key that is not less than this one; null if there is none.
  Entry* findNotLess(const Key& key) {
    const auto place = places_.lower_bound(key);
    return place == places_.end() ? nullptr : &*place->second;
  }
  /// Makes the entry the most recently used one.
  void touch(const Entry& entry) { entries_.splice(entries_.end(), entries_, places_.at(entry.key)); }
  /// A key that is not in the table yet.
  Entry& add(const Key& key, Value value) {
    entries_.push_back({key, std::move(value), next_++});
    places_.emplace(key, std::prev(entries_.end()));
    return entries_.back();
  }

  /// Whether release() is due before the next add(): the same on all ranks.
  bool isFull() const noexcept { return size() >= limit_; }
  /// What the other ranks have to know for release().
  std::vector<char> uses() const {
    std::vector<std::uint64_t> words;
    for (const Entry& entry : entries_) words.push_back(entry.number << 1 | (entry.isCaptured ? 1 : 0));
    std::vector<char> bytes(words.size() * sizeof(std::uint64_t));
    if (!bytes.empty()) std::memcpy(bytes.data(), words.data(), bytes.size());
    return bytes;
  }
  /// Keeps at most 3/4 of the entries that may stay, beside what graphs use. ofRanks: uses() of all ranks, whose order
  /// is that of the first rank, in case that some rank's calls have thrown. Called on all ranks when no call is in
  /// flight on any.
  void release(const std::vector<std::vector<char>>& ofRanks) {
    std::vector<std::uint64_t> order;
    std::map<std::uint64_t, bool> isCaptured;
    for (const std::vector<char>& bytes : ofRanks) {
      std::vector<std::uint64_t> words(bytes.size() / sizeof(std::uint64_t));
      if (!words.empty()) std::memcpy(words.data(), bytes.data(), words.size() * sizeof(std::uint64_t));
      for (const std::uint64_t word : words) {
        if (isCaptured.try_emplace(word >> 1, false).second) order.push_back(word >> 1);
        isCaptured[word >> 1] = isCaptured[word >> 1] || (word & 1) != 0;
      }
      if (words.size() == size() && order.size() == size()) continue;
      throw Error(
          "Executor: the ranks keep memory for different calls: all ranks must make the same calls in the "
          "same order, and call reset() together",
          ErrorCode::InvalidUsage);
    }
    std::map<std::uint64_t, typename std::list<Entry>::iterator> byNumber;
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) byNumber.emplace(entry->number, entry);
    std::size_t free = 0;
    for (const auto& [number, captured] : isCaptured) free += captured ? 0 : 1;
    for (const std::uint64_t number : order) {
      if (free <= most_ * 3 / 4) break;
      if (isCaptured[number]) continue;
      const auto entry = byNumber.at(number);
      places_.erase(entry->key);
      entries_.erase(entry);
      --free;
    }
    limit_ = size() + std::max<std::size_t>(most_ / 4, 1);
  }

  void clear() {
    places_.clear();
    entries_.clear();
    limit_ = most_;
  }

 private:
  std::size_t most_;
  std::size_t limit_;
  std::uint64_t next_ = 1;
  std::list<Entry> entries_;
  std::map<Key, typename std::list<Entry>::iterator> places_;
};

}  // namespace mscclpp::kernels
