#include "host/net/socket_address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "host/base/event.hpp"
#include "host/base/service_thread.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

bool SocketAddress::isLoopback() const {
  if (family == Family::V4) return bytes[0] == 127;
  return family == Family::V6 && std::all_of(bytes.begin(), bytes.end() - 1, [](auto b) { return b == 0; }) &&
         bytes[15] == 1;
}

bool SocketAddress::isWildcard() const {
  return std::all_of(bytes.begin(), bytes.end(), [](auto b) { return b == 0; });
}

bool SocketAddress::isLinkLocal() const {
  if (family == Family::V4) return bytes[0] == 169 && bytes[1] == 254;
  return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
}

std::string SocketAddress::toString() const {
  char text[INET6_ADDRSTRLEN] = "?";
  const bool v4 = family == Family::V4;
  ::inet_ntop(v4 ? AF_INET : AF_INET6, bytes.data(), text, sizeof(text));
  return (v4 ? std::string(text) : '[' + std::string(text) + ']') + ':' + std::to_string(port);
}

socklen_t SocketAddress::toSockaddr(sockaddr_storage& storage) const {
  std::memset(&storage, 0, sizeof(storage));
  if (family == Family::V4) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(storage);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&v4.sin_addr, bytes.data(), sizeof(v4.sin_addr));
    return sizeof(v4);
  }
  if (family == Family::V6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(storage);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    v6.sin6_scope_id = isLinkLocal() ? scope : 0;
    std::memcpy(&v6.sin6_addr, bytes.data(), sizeof(v6.sin6_addr));
    return sizeof(v6);
  }
  throw Error("an address is neither IPv4 nor IPv6: the UniqueId or message that carried it is damaged",
              ErrorCode::InvalidUsage);
}

SocketAddress SocketAddress::fromSockaddr(const sockaddr* address) {
  SocketAddress result{};
  if (address != nullptr && address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    result.family = Family::V4;
    result.port = ntohs(v4->sin_port);
    std::memcpy(result.bytes.data(), &v4->sin_addr, sizeof(v4->sin_addr));
  } else if (address != nullptr && address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    result.family = Family::V6;
    result.port = ntohs(v6->sin6_port);
    result.scope = v6->sin6_scope_id;
    std::memcpy(result.bytes.data(), &v6->sin6_addr, sizeof(v6->sin6_addr));
  }
  return result;
}

namespace {

// The system resolver's result for a name.
struct Resolution {
  Resolution() = default;
  Resolution(const Resolution&) = delete;
  Resolution& operator=(const Resolution&) = delete;
  ~Resolution() {
    if (found != nullptr) ::freeaddrinfo(found);
  }

  void resolve(const std::string& host, addrinfo hints) noexcept {
    status = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
    isDone.set();
  }

  Event isDone;
  int status = 0;
  addrinfo* found = nullptr;
};

std::shared_ptr<Resolution> getAddrInfo(const std::string& host, const std::string& family, const std::string& text,
                                        Deadline deadline) {
  addrinfo hints{};
  hints.ai_family = family == "AF_INET" ? AF_INET : family == "AF_INET6" ? AF_INET6 : AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  auto numeric = std::make_shared<Resolution>();
  numeric->resolve(host, hints);
  if (numeric->status == 0) return numeric;

  // A resolver call cannot be interrupted: it runs on its own thread, which is detached if it takes too long.
  hints.ai_flags = 0;
  auto resolution = std::make_shared<Resolution>();
  startServiceThread("mscclpp-resolve", [resolution, host, hints] { resolution->resolve(host, hints); }).detach();
  while (!resolution->isDone.isSet()) {
    if (deadline.expired()) {
      throw Error("\"" + text + "\": the host name " + host + " was not resolved within " + deadline.elapsedText() +
                      "; give the address instead",
                  ErrorCode::Timeout);
    }
    pollfd entries[] = {{resolution->isDone.descriptor(), POLLIN, 0}, deadline.cancelEntry()};
    ::poll(entries, std::size(entries), deadline.pollTimeout());
  }
  if (resolution->status != 0) {
    throw Error("\"" + text + "\": " + host + " is not an address, and no host of that name was found (" +
                    ::gai_strerror(resolution->status) + ")" +
                    (family.empty() ? "" : "; MSCCLPP_SOCKET_FAMILY allows only " + family),
                ErrorCode::InvalidUsage);
  }
  return resolution;
}

SocketAddress resolveAddress(const std::string& host, const std::string& family, const std::string& text,
                             Deadline deadline) {
  const auto resolution = getAddrInfo(host, family, text, deadline);
  const addrinfo* found = resolution->found;
  SocketAddress first = SocketAddress::fromSockaddr(found->ai_addr);
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    // All ranks must choose the same address, in whatever order their resolvers return them: IPv4 if there is one.
    if (entry->ai_family == AF_INET) return SocketAddress::fromSockaddr(entry->ai_addr);
  }
  return first;
}

}  // namespace

RendezvousAddress parseRendezvousAddress(const std::string& text, Deadline deadline) {
  const auto invalidAddress = [&](const std::string& why) -> Error {
    return Error(
        "\"" + text + "\" is not a rendezvous address: " + why + "; expected ip:port, [ip6]:port or ifname:ip:port",
        ErrorCode::InvalidUsage);
  };
  const std::size_t lastColon = text.rfind(':');
  if (lastColon == std::string::npos) throw invalidAddress("the port is missing");
  const std::string portString = text.substr(lastColon + 1);
  std::uint16_t port = 0;
  const auto [end, status] = std::from_chars(portString.data(), portString.data() + portString.size(), port);
  if (status != std::errc() || end != portString.data() + portString.size() || port == 0) {
    throw invalidAddress("the port must be a number from 1 to 65535");
  }

  RendezvousAddress result;
  std::string host = text.substr(0, lastColon);
  if (host.ends_with(']')) {
    const std::size_t bracket = host.find('[');
    if (bracket == std::string::npos || (bracket > 0 && host[bracket - 1] != ':'))
      throw invalidAddress("\"[\" is missing");
    if (bracket > 0) result.interface = host.substr(0, bracket - 1);
    if (bracket == 1) throw invalidAddress("the interface name is empty");
    host = host.substr(bracket + 1, host.size() - bracket - 2);
  } else if (host.find('[') != std::string::npos) {
    throw invalidAddress("\"]\" is missing");
  } else if (const std::size_t colon = host.find(':'); colon != std::string::npos) {
    if (host.find(':', colon + 1) != std::string::npos) throw invalidAddress("an IPv6 address needs brackets");
    if (colon == 0) throw invalidAddress("the interface name is empty");
    result.interface = host.substr(0, colon);
    host = host.substr(colon + 1);
  }
  if (host.empty()) throw invalidAddress("the address is empty");
  result.address = resolveAddress(host, env()->socketFamily, text, deadline);
  result.address.port = port;
  // A link-local address is reachable only with its interface; "[fe80::1%eth0]" names it as well.
  const bool needsScope = result.address.family == SocketAddress::Family::V6 && result.address.isLinkLocal();
  if (needsScope && result.address.scope == 0 && !result.interface.empty()) {
    result.address.scope = ::if_nametoindex(result.interface.c_str());
    if (result.address.scope == 0) throw invalidAddress("this host has no interface " + result.interface);
  }
  if (result.address.isWildcard()) {
    throw invalidAddress("a wildcard would listen on every network; name the address of rank 0's host");
  }
  return result;
}

InterfaceFilter::InterfaceFilter(const std::string& list) : list_(list) {
  const auto strip = [this](char mark) {
    const bool found = list_.starts_with(mark);
    if (found) list_.erase(0, 1);
    return found;
  };
  exclude_ = strip('^');
  exact_ = strip('=');
}

bool InterfaceFilter::matches(const std::string& name) const {
  std::string_view rest = list_;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, comma);
    if (!item.empty() && (exact_ ? name == item : name.starts_with(item))) return !exclude_;
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return exclude_;
}

namespace {

std::string listText(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

/// What chooseLocalAddress() was to find, as the user wrote it: a single name may be of an address "ifname:ip:port".
std::string wantedText(const std::string& interfaces, const std::string& family) {
  std::string text;
  if (interfaces.starts_with('=') && interfaces.find(',') == std::string::npos) {
    text = "the name \"" + interfaces.substr(1) + "\", which MSCCLPP_SOCKET_IFNAME or the rendezvous address has";
  } else if (!interfaces.empty()) {
    text = "MSCCLPP_SOCKET_IFNAME, \"" + interfaces + '"';
  }
  if (!family.empty()) text += (text.empty() ? "" : ", and ") + ("MSCCLPP_SOCKET_FAMILY, \"" + family + '"');
  return text.empty() ? "a rendezvous: none is up" : text;
}

}  // namespace

SocketAddress chooseLocalAddress(const std::string& interfaces, const std::string& family) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw SysError("cannot list the network interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);

  const InterfaceFilter filter(interfaces);
  const auto interfacePenalty = [](const std::string& name, bool loopback) {
    if (loopback) return 3;
    if (name.starts_with("docker")) return 2;
    return name.starts_with("ib") ? 0 : 1;
  };
  SocketAddress best{};
  int bestScore = -1;
  std::vector<std::string> available;  // each once: an interface may have several addresses
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    SocketAddress address = SocketAddress::fromSockaddr(entry->ifa_addr);
    if (address.family == SocketAddress::Family::None || (entry->ifa_flags & IFF_UP) == 0) continue;
    const std::string name = entry->ifa_name;
    if (std::ranges::find(available, name) == available.end()) available.push_back(name);
    if (!interfaces.empty() && !filter.matches(name)) continue;
    if (family == "AF_INET" && address.family != SocketAddress::Family::V4) continue;
    if (family == "AF_INET6" && address.family != SocketAddress::Family::V6) continue;
    // Lower is better: first by interface, then an address that needs no scope, then IPv4.
    const int score = (interfaces.empty() ? interfacePenalty(name, address.isLoopback()) * 4 : 0) +
                      (address.isLinkLocal() ? 2 : 0) + (address.family == SocketAddress::Family::V6 ? 1 : 0);
    if (bestScore < 0 || score < bestScore) {
      best = address;
      bestScore = score;
    }
  }
  if (bestScore < 0) {
    throw Error(
        "no network interface fits " + wantedText(interfaces, family) + "; this host has: " + listText(available),
        ErrorCode::InvalidUsage);
  }
  best.port = 0;
  return best;
}

}  // namespace mscclpp::detail
