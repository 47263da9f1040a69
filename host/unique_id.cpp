#include "unique_id.hpp"

#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "mscclpp/host/error.hpp"
#include "socket.hpp"

namespace mscclpp::detail {

namespace {

constexpr std::array<char, 8> idMagic = {'m', 's', 'c', 'c', 'l', 'p', 'p', '1'};
constexpr std::size_t mostReservedPorts = 64;
constexpr std::size_t shortestSecret = 16;

struct Layout {
  std::array<char, 8> magic;
  Rendezvous rendezvous;
  std::array<std::uint8_t, 16> checksum;  // of what stands before it: a damaged token is told from a wrong secret
  std::array<std::uint8_t, 64> unused;
};
static_assert(sizeof(Layout) == UniqueIdBytes && std::has_unique_object_representations_v<Layout>);

std::array<std::uint8_t, 16> checksumOf(const Layout& layout) {
  std::array<std::uint8_t, 16> sum;
  crypto_generichash(sum.data(), sum.size(), reinterpret_cast<const unsigned char*>(&layout),
                     offsetof(Layout, checksum), nullptr, 0);
  return sum;
}

struct ReservedPort {
  SocketAddress address;
  UniqueFd socket;
  pid_t owner;
};

std::mutex reservedMutex;
std::deque<ReservedPort> reservedPorts;

}  // namespace

UniqueId toUniqueId(const Rendezvous& rendezvous) {
  Layout layout{idMagic, rendezvous, {}, {}};
  layout.checksum = checksumOf(layout);
  UniqueId id;
  std::memcpy(id.data(), &layout, sizeof(layout));
  return id;
}

Rendezvous fromUniqueId(const UniqueId& id) {
  Layout layout;
  std::memcpy(&layout, id.data(), sizeof(layout));
  if (layout.magic != idMagic || layout.checksum != checksumOf(layout)) {
    throw Error("this is no UniqueId: pass on all " + std::to_string(UniqueIdBytes) +
                    " bytes that TcpBootstrap::createUniqueId returned on rank 0",
                ErrorCode::InvalidUsage);
  }
  return layout.rendezvous;
}

SocketAddress reservePort(const SocketAddress& localAddress) {
  UniqueFd socket = bindTo(localAddress);
  const SocketAddress address = localAddressOf(socket);
  std::lock_guard lock(reservedMutex);
  if (reservedPorts.size() == mostReservedPorts) reservedPorts.pop_front();
  reservedPorts.push_back({address, std::move(socket), ::getpid()});
  return address;
}

UniqueFd takeReservedPort(const SocketAddress& address) {
  std::lock_guard lock(reservedMutex);
  const auto entry = std::find_if(reservedPorts.begin(), reservedPorts.end(),
                                  [&](const ReservedPort& port) { return port.address == address; });
  if (entry == reservedPorts.end()) return UniqueFd();
  UniqueFd socket = std::move(entry->socket);
  reservedPorts.erase(entry);
  return socket;
}

void dropInheritedPort(const SocketAddress& address) noexcept {
  std::lock_guard lock(reservedMutex);
  const pid_t self = ::getpid();
  std::erase_if(reservedPorts, [&](const ReservedPort& port) { return port.address == address && port.owner != self; });
}

Secret secretForAddress(const SocketAddress& address) {
  const char* given = std::getenv("MSCCLPP_SECRET");
  if (given != nullptr && *given != '\0') {
    if (std::strlen(given) < shortestSecret) {
      throw Error("MSCCLPP_SECRET is too short: it needs " + std::to_string(shortestSecret) +
                      " characters or more, the same on every rank, for example from `openssl rand -hex 16`",
                  ErrorCode::InvalidUsage);
    }
    return secretFromText(given);
  }
  if (!address.isLoopback()) {
    throw Error("a rendezvous at " + address.toString() +
                    " can be reached over the network, so it needs a secret: set MSCCLPP_SECRET to the same text on "
                    "every rank, for example from `openssl rand -hex 16`",
                ErrorCode::InvalidUsage);
  }
  return secretFromText("loopback user " + std::to_string(::getuid()) + " at " + address.toString());
}

}  // namespace mscclpp::detail
