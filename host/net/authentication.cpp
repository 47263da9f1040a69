#include "host/net/authentication.hpp"

#include <sodium.h>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

namespace {

void initializeSodium() {
  if (sodium_init() < 0) throw Error("libsodium cannot find a source of randomness", ErrorCode::SystemError);
}

const unsigned char* asUnsignedBytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

Secret makeSecret() {
  initializeSodium();
  Secret secret;
  randombytes_buf(secret.data(), secret.size());
  return secret;
}

Secret secretFromText(const std::string& text) {
  initializeSodium();
  Secret secret;
  crypto_generichash(secret.data(), secret.size(), asUnsignedBytes(text), text.size(), nullptr, 0);
  return secret;
}

Key keyFromSecret(const Secret& secret, std::string_view context) {
  initializeSodium();
  Key key;
  crypto_generichash(key.data(), key.size(), asUnsignedBytes(context), context.size(), secret.data(), secret.size());
  return key;
}

Nonce makeNonce() {
  initializeSodium();
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

AuthTag computeAuthTag(const Key& key, std::initializer_list<std::string_view> parts) {
  AuthTag authTag;
  crypto_generichash_state state;
  crypto_generichash_init(&state, key.data(), key.size(), authTag.size());
  for (std::string_view part : parts) crypto_generichash_update(&state, asUnsignedBytes(part), part.size());
  crypto_generichash_final(&state, authTag.data(), authTag.size());
  return authTag;
}

bool constantTimeEqual(const AuthTag& a, const AuthTag& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace mscclpp::detail
