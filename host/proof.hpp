// Proving to each other that two processes know the same secret: keys, nonces, and proofs over the bytes of messages.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace mscclpp::detail {

/// The 128 bits that two sides share.
using Secret = std::array<std::uint8_t, 16>;
/// What proofs are made with; derived from the secret.
using Key = std::array<std::uint8_t, 32>;
using Nonce = std::array<std::uint8_t, 32>;
using Proof = std::array<std::uint8_t, 32>;

Secret makeSecret();
/// A secret from a text that a person chose.
Secret secretFromText(const std::string& text);
/// `use` keeps apart the keys that serve different ends.
Key keyFromSecret(const Secret& secret, std::string_view use = "mscclpp bootstrap key");
Nonce makeNonce();

/// A MAC under the key over the parts in a row, each of which has a fixed length.
Proof proofOf(const Key& key, std::initializer_list<std::string_view> parts);
/// In a time that tells nothing.
bool sameProof(const Proof& a, const Proof& b);

/// A message as the proofs cover it and the wire carries it.
template <class Wire>
std::string_view bytesOf(const Wire& wire) {
  // Without padding: the proofs cover every byte, and no stray memory is sent.
  static_assert(std::is_trivially_copyable_v<Wire> && std::has_unique_object_representations_v<Wire>);
  return {reinterpret_cast<const char*>(&wire), sizeof(Wire)};
}

}  // namespace mscclpp::detail
