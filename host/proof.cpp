#include "proof.hpp"

#include <sodium.h>

#include "mscclpp/host/error.hpp"

namespace mscclpp::detail {

namespace {

void requireSodium() {
  if (sodium_init() < 0) throw Error("libsodium cannot find a source of randomness", ErrorCode::SystemError);
}

const unsigned char* unsignedBytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

Secret makeSecret() {
  requireSodium();
  Secret secret;
  randombytes_buf(secret.data(), secret.size());
  return secret;
}

Secret secretFromText(const std::string& text) {
  requireSodium();
  Secret secret;
  crypto_generichash(secret.data(), secret.size(), unsignedBytes(text), text.size(), nullptr, 0);
  return secret;
}

Key keyFromSecret(const Secret& secret, std::string_view use) {
  requireSodium();
  Key key;
  crypto_generichash(key.data(), key.size(), unsignedBytes(use), use.size(), secret.data(), secret.size());
  return key;
}

Nonce makeNonce() {
  requireSodium();
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

Proof proofOf(const Key& key, std::initializer_list<std::string_view> parts) {
  Proof proof;
  crypto_generichash_state state;
  crypto_generichash_init(&state, key.data(), key.size(), proof.size());
  for (std::string_view part : parts) crypto_generichash_update(&state, unsignedBytes(part), part.size());
  crypto_generichash_final(&state, proof.data(), proof.size());
  return proof;
}

bool sameProof(const Proof& a, const Proof& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace mscclpp::detail
