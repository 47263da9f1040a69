#include "token_pool.hpp"

#include "device_memory.hpp"

namespace mscclpp::detail {

namespace {
constexpr std::size_t tokenStride = 64;
constexpr std::size_t tokensPerChunk = 1024;
}  // namespace

std::shared_ptr<std::uint64_t> TokenPool::take() {
  std::lock_guard lock(mutex_);
  if (free_.empty()) {
    chunks_.push_back(allocateSharedMemory(device_, tokenStride * tokensPerChunk));
    // Room for every token there is: giving one back must not need memory.
    free_.reserve(chunks_.size() * tokensPerChunk);
    auto* base = static_cast<char*>(chunks_.back().get());
    for (std::size_t i = tokensPerChunk; i-- > 0;) {
      free_.push_back(reinterpret_cast<std::uint64_t*>(base + i * tokenStride));
    }
  }
  std::uint64_t* token = free_.back();
  zeroMemory(device_, token, sizeof(*token));
  free_.pop_back();
  return {token, [pool = shared_from_this()](std::uint64_t* returned) {
            std::lock_guard giveBack(pool->mutex_);
            pool->free_.push_back(returned);
          }};
}

}  // namespace mscclpp::detail
