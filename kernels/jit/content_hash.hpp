// A hash of texts: equal only for the same texts in the same order.
#pragma once

#include <sodium.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace mscclpp::jit::detail {

/// BLAKE2b with 256 bits.
class ContentHash {
 public:
  using Digest = std::array<unsigned char, crypto_generichash_BYTES>;

  ContentHash() { crypto_generichash_init(&state_, nullptr, 0, crypto_generichash_BYTES); }

  /// With its length, so that "ab", "c" and "a", "bc" differ.
  ContentHash& add(std::string_view text) {
    const std::uint64_t length = text.size();
    update(&length, sizeof(length));
    update(text.data(), text.size());
    return *this;
  }

  Digest finish() {
    Digest digest;
    crypto_generichash_final(&state_, digest.data(), digest.size());
    return digest;
  }
  /// 64 hexadecimal digits.
  std::string finishAsText() {
    const Digest digest = finish();
    std::string text(2 * digest.size() + 1, '\0');
    sodium_bin2hex(text.data(), text.size(), digest.data(), digest.size());
    text.pop_back();
    return text;
  }

 private:
  void update(const void* data, std::size_t bytes) {
    crypto_generichash_update(&state_, static_cast<const unsigned char*>(data), bytes);
  }

  crypto_generichash_state state_;
};

}  // namespace mscclpp::jit::detail
