// A table that is appended to while other threads read it without a lock; its elements never move.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

namespace mscclpp::detail {

/// Any thread may append; any thread may read the elements below size().
template <class T>
class AppendOnlyTable {
 public:
  std::uint32_t size() const noexcept { return size_.load(std::memory_order_acquire); }

  /// Null if there is no element with this index yet.
  T* find(std::uint32_t index) const noexcept {
    if (index >= size()) return nullptr;
    const Location location = locate(index);
    return &blocks_[location.block][location.offset];
  }

  /// Returns the index of the new element, or `capacity` if the table already has `capacity` elements.
  std::uint32_t append(T value, std::uint64_t capacity) {
    const std::lock_guard lock(mutex_);
    const std::uint32_t index = size_.load(std::memory_order_relaxed);
    if (index >= capacity) return index;
    const Location location = locate(index);
    auto& block = blocks_[location.block];
    if (!block) block = std::make_unique<T[]>(std::size_t{1} << location.block);
    block[location.offset] = std::move(value);
    size_.store(index + 1, std::memory_order_release);
    return index;
  }

 private:
  /// Chunk p has 2^p elements: those whose index + 1 has p + 1 bits.
  struct Location {
    std::size_t block;
    std::size_t offset;
  };
  static Location locate(std::uint32_t index) noexcept {
    const std::uint64_t number = std::uint64_t{index} + 1;
    const auto block = static_cast<std::size_t>(std::bit_width(number) - 1);
    return {block, static_cast<std::size_t>(number - (std::uint64_t{1} << block))};
  }

  std::mutex mutex_;
  std::atomic<std::uint32_t> size_ = 0;
  std::array<std::unique_ptr<T[]>, 33> blocks_;
};

}  // namespace mscclpp::detail
