// A table that grows at its end while others read it without a lock; what is in it never moves.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

namespace mscclpp::detail {

/// Any thread may append; any thread may read what size() has shown to be there.
template <class T>
class AppendOnlyTable {
 public:
  std::uint32_t size() const noexcept { return size_.load(std::memory_order_acquire); }

  /// Null for an index that is not there yet.
  T* find(std::uint32_t index) const noexcept {
    if (index >= size()) return nullptr;
    const Place place = placeOf(index);
    return &pieces_[place.piece][place.offset];
  }

  /// The index of the new element; what `most` elements leave no room for is not appended, and gives `most`.
  std::uint32_t append(T value, std::uint64_t most) {
    const std::lock_guard lock(mutex_);
    const std::uint32_t index = size_.load(std::memory_order_relaxed);
    if (index >= most) return index;
    const Place place = placeOf(index);
    auto& piece = pieces_[place.piece];
    if (!piece) piece = std::make_unique<T[]>(std::size_t{1} << place.piece);
    piece[place.offset] = std::move(value);
    size_.store(index + 1, std::memory_order_release);
    return index;
  }

 private:
  /// Piece p has 2^p elements: those whose index + 1 has p + 1 bits.
  struct Place {
    std::size_t piece;
    std::size_t offset;
  };
  static Place placeOf(std::uint32_t index) noexcept {
    const std::uint64_t number = std::uint64_t{index} + 1;
    const auto piece = static_cast<std::size_t>(std::bit_width(number) - 1);
    return {piece, static_cast<std::size_t>(number - (std::uint64_t{1} << piece))};
  }

  std::mutex mutex_;
  std::atomic<std::uint32_t> size_ = 0;
  std::array<std::unique_ptr<T[]>, 33> pieces_;
};

}  // namespace mscclpp::detail
