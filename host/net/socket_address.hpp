// Internet addresses: as text, in the binary form sent to other ranks, and those of this host's interfaces.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>

#include "host/base/deadline.hpp"

namespace mscclpp::detail {

/// An IPv4 or IPv6 address and port in one layout. Sent as its bytes: no padding, little-endian hosts.
struct SocketAddress {
  enum class Family : std::uint16_t { None = 0, V4 = 4, V6 = 6 };

  Family family;
  std::uint16_t port;
  std::uint32_t scope;                 ///< The interface index of a link-local IPv6 address, meaningful on its host.
  std::array<std::uint8_t, 16> bytes;  ///< In network byte order; IPv4 uses the first four.

  bool operator==(const SocketAddress&) const = default;

  bool isLoopback() const;
  bool isWildcard() const;
  bool isLinkLocal() const;
  std::string toString() const;

  /// Fills `storage`; returns the length of the address in it. Throws Error(InvalidUsage) for an unknown family.
  socklen_t toSockaddr(sockaddr_storage& storage) const;
  /// Family None if it is neither IPv4 nor IPv6.
  static SocketAddress fromSockaddr(const sockaddr* address);
};
static_assert(sizeof(SocketAddress) == 24);

/// Where ranks find each other: "ip:port", "[ip6]:port" or "name:port", preceded by "ifname:" to select an interface.
/// The interface is also the scope of a link-local address.
struct RendezvousAddress {
  std::string interface;  ///< Empty if none is selected.
  SocketAddress address;
};

/// Throws Error(InvalidUsage) with what is wrong in `text`. A host name is resolved, which can take arbitrarily long,
/// so it throws Error(Timeout) at `deadline`.
RendezvousAddress parseRendezvousAddress(const std::string& text, Deadline deadline);

/// Which interfaces may be used: a comma list of name prefixes; leading "^" turns it into an exclusion and "=" makes
/// the names exact ("^=" does both).
class InterfaceFilter {
 public:
  explicit InterfaceFilter(const std::string& list);
  bool matches(const std::string& name) const;

 private:
  std::string list_;
  bool exclude_ = false;
  bool exact_ = false;
};

/// The address of this host, port 0, that is best for other hosts to use. `interfaces` is in InterfaceFilter's form; if
/// empty, ib* is preferred, then anything but docker* and lo, then docker*, then lo. `family` is "AF_INET", "AF_INET6"
/// or "" (IPv4 first). If none fits, throws Error(InvalidUsage) that lists the available addresses.
SocketAddress chooseLocalAddress(const std::string& interfaces, const std::string& family);

}  // namespace mscclpp::detail
