#include "host/bootstrap/unique_id.hpp"

#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "host/base/process_identity.hpp"
#include "host/net/socket.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

namespace {

constexpr std::array<char, 8> idMagic = {'m', 's', 'c', 'c', 'l', 'p', 'p', '1'};
constexpr std::size_t maxReservedPorts = 64;
constexpr std::size_t minSecretLength = 16;

struct UniqueIdLayout {
  std::array<char, 8> magic;
  Rendezvous rendezvous;
  std::array<std::uint8_t, 16> checksum;  // of the above: a mismatch means a corrupted UniqueId, not a wrong secret
  std::array<std::uint8_t, 64> unused;
};
static_assert(sizeof(UniqueIdLayout) == UniqueIdBytes && std::has_unique_object_representations_v<UniqueIdLayout>);

std::array<std::uint8_t, 16> checksumOf(const UniqueIdLayout& layout) {
  std::array<std::uint8_t, 16> sum;
  crypto_generichash(sum.data(), sum.size(), reinterpret_cast<const unsigned char*>(&layout),
                     offsetof(UniqueIdLayout, checksum), nullptr, 0);
  return sum;
}

// Any process of this host can derive it: it only separates the jobs of different users and addresses.
Secret publicSecret(const SocketAddress& address) {
  return secretFromText("loopback user " + std::to_string(::geteuid()) + " at " + address.toString());
}

struct ReservedPort {
  SocketAddress address;
  UniqueFd socket;
  OwnerProcess owner{};
};

std::mutex reservedMutex;
std::deque<ReservedPort> reservedPorts;

}  // namespace

UniqueId toUniqueId(const Rendezvous& rendezvous) {
  UniqueIdLayout layout{idMagic, rendezvous, {}, {}};
  layout.checksum = checksumOf(layout);
  UniqueId id;
  std::memcpy(id.data(), &layout, sizeof(layout));
  return id;
}

bool isUniqueId(const UniqueId& id) {
  UniqueIdLayout layout;
  std::memcpy(&layout, id.data(), sizeof(layout));
  return layout.magic == idMagic && layout.checksum == checksumOf(layout);
}

Rendezvous fromUniqueId(const UniqueId& id) {
  UniqueIdLayout layout;
  std::memcpy(&layout, id.data(), sizeof(layout));
  if (!isUniqueId(id)) {
    throw Error("invalid UniqueId: pass on all " + std::to_string(UniqueIdBytes) +
                    " bytes that TcpBootstrap::createUniqueId returned on rank 0",
                ErrorCode::InvalidUsage);
  }
  return layout.rendezvous;
}

SocketAddress reservePort(const SocketAddress& localAddress) {
  UniqueFd socket = bindTo(localAddress);
  const SocketAddress address = localAddressOf(socket);
  std::lock_guard lock(reservedMutex);
  if (reservedPorts.size() == maxReservedPorts) reservedPorts.pop_front();
  reservedPorts.push_back({address, std::move(socket)});
  return address;
}

UniqueFd claimReservedPort(const SocketAddress& address) {
  std::lock_guard lock(reservedMutex);
  const auto entry = std::find_if(reservedPorts.begin(), reservedPorts.end(),
                                  [&](const ReservedPort& port) { return port.address == address; });
  if (entry == reservedPorts.end()) return UniqueFd();
  UniqueFd socket = std::move(entry->socket);
  reservedPorts.erase(entry);
  return socket;
}

void closeInheritedPort(const SocketAddress& address) noexcept {
  std::lock_guard lock(reservedMutex);
  std::erase_if(reservedPorts,
                [&](const ReservedPort& port) { return port.address == address && !port.owner.isCurrent(); });
}

Secret secretForAddress(const SocketAddress& address) {
  const char* secretText = std::getenv("MSCCLPP_SECRET");
  if (secretText != nullptr && *secretText != '\0') {
    if (std::strlen(secretText) < minSecretLength) {
      throw Error("MSCCLPP_SECRET is too short: it needs " + std::to_string(minSecretLength) +
                      " characters or more, the same on every rank, for example from `openssl rand -hex 16`",
                  ErrorCode::InvalidUsage);
    }
    return secretFromText(secretText);
  }
  if (!address.isLoopback()) {
    throw Error("a rendezvous at " + address.toString() +
                    " can be reached over the network, so it needs a secret: set MSCCLPP_SECRET to the same text on "
                    "every rank, for example from `openssl rand -hex 16`",
                ErrorCode::InvalidUsage);
  }
  return publicSecret(address);
}

AllowedUsers allowedUsersFor(const Rendezvous& rendezvous) {
  const bool isPublic = rendezvous.address.isLoopback() && rendezvous.secret == publicSecret(rendezvous.address);
  return isPublic ? AllowedUsers::Same : AllowedUsers::Any;
}

}  // namespace mscclpp::detail
