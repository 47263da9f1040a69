// How two processes authenticate with a shared secret: keys, nonces, and authentication tags of messages.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace mscclpp::detail {

/// The 128 bits that both sides share.
using Secret = std::array<std::uint8_t, 16>;
/// Used to compute authentication tags; derived from the secret.
using Key = std::array<std::uint8_t, 32>;
using Nonce = std::array<std::uint8_t, 32>;
using AuthTag = std::array<std::uint8_t, 32>;

Secret makeSecret();
/// Derives a secret from a user-chosen text.
Secret secretFromText(const std::string& text);
/// Keys of different `context` are independent.
Key keyFromSecret(const Secret& secret, std::string_view context = "mscclpp bootstrap key");
Nonce makeNonce();

/// A MAC under the key over the concatenated parts, each of which has a fixed length.
AuthTag computeAuthTag(const Key& key, std::initializer_list<std::string_view> parts);
/// In constant time, independent of the contents.
bool constantTimeEqual(const AuthTag& a, const AuthTag& b);

/// The bytes of a message, as they are authenticated and sent.
template <class Wire>
std::string_view bytesOf(const Wire& wire) {
  // Without padding: the tags cover every byte, and no uninitialised memory is sent.
  static_assert(std::is_trivially_copyable_v<Wire> && std::has_unique_object_representations_v<Wire>);
  return {reinterpret_cast<const char*>(&wire), sizeof(Wire)};
}

}  // namespace mscclpp::detail
