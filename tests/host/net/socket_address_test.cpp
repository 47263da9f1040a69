// Addresses: text forms, interface filters, and the choice among this host's addresses.
#include "host/net/socket_address.hpp"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>

#include "mscclpp/host/base/error.hpp"

using namespace mscclpp;
using namespace mscclpp::detail;

namespace {

// Minimum duration of the next getaddrinfo of a host name: the library must handle a slow resolver.
std::atomic<int> resolverDelay = 0;  // milliseconds

Deadline soon() {
  return Deadline::after(std::chrono::seconds(20));
}

}  // namespace

extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints, addrinfo** found) {
  if ((hints->ai_flags & AI_NUMERICHOST) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(resolverDelay));
  return reinterpret_cast<decltype(&getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"))(host, service, hints, found);
}

TEST_CASE("a slow resolver takes no longer than the deadline, and numeric addresses need no resolver") {
  resolverDelay = 20'000;
  const auto start = std::chrono::steady_clock::now();
  CHECK(parseRendezvousAddress("127.0.0.1:5", soon()).address.isLoopback());
  try {
    parseRendezvousAddress("localhost:5", Deadline::after(std::chrono::milliseconds(100)));
    FAIL("it was resolved");
  } catch (const Error& error) {
    CHECK(error.getErrorCode() == ErrorCode::Timeout);
    CHECK(std::string(error.what()).find("localhost was not resolved within ") != std::string::npos);
  }
  Event cancelled;
  cancelled.set();
  CHECK_THROWS_AS(parseRendezvousAddress("localhost:5", soon().orWhenCancelled(cancelled)), Error);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(15));
  resolverDelay = 0;
}

TEST_CASE("rendezvous addresses are parsed in all their forms") {
  struct Case {
    const char *text, *interface, *address;
  };
  for (const Case& expected :
       {Case{"10.1.2.3:77", "", "10.1.2.3:77"}, Case{"eth0:10.1.2.3:65535", "eth0", "10.1.2.3:65535"},
        Case{"[fe80::1]:8", "", "[fe80::1]:8"}, Case{"ib0:[2001:db8::5]:9", "ib0", "[2001:db8::5]:9"},
        Case{"localhost:5", "", "127.0.0.1:5"}}) {
    CAPTURE(expected.text);
    const RendezvousAddress point = parseRendezvousAddress(expected.text, soon());
    CHECK(point.interface == expected.interface);
    CHECK(point.address.toString() == expected.address);
  }
}

TEST_CASE("the error for text that is not an address says what is wrong") {
  for (const auto& refused : {std::pair{"127.0.0.1", "the port is missing"},
                              {"127.0.0.1:0", "the port must be a number from 1 to 65535"},
                              {"::1:5", "an IPv6 address needs brackets"},
                              {"::1]:5", "\"[\" is missing"},
                              {"[::1", "\"]\" is missing"},
                              {"[::1:5", "\"]\" is missing"},
                              {":127.0.0.1:5", "the interface name is empty"},
                              {":5", "the address is empty"}}) {
    CAPTURE(refused.first);
    CHECK_THROWS_WITH_AS(parseRendezvousAddress(refused.first, soon()), doctest::Contains(refused.second), Error);
  }
}

TEST_CASE("a link-local address belongs to the interface given with it") {
  const std::uint32_t loopback = ::if_nametoindex("lo");
  CHECK(parseRendezvousAddress("lo:[fe80::1]:8", soon()).address.scope == loopback);
  CHECK(parseRendezvousAddress("[fe80::1%lo]:8", soon()).address.scope == loopback);
  CHECK(parseRendezvousAddress("lo:[2001:db8::5]:8", soon()).address.scope == 0);
  CHECK_THROWS_WITH_AS(parseRendezvousAddress("nosuchif0:[fe80::1]:8", soon()),
                       doctest::Contains("this host has no interface nosuchif0"), Error);
  sockaddr_storage storage;
  parseRendezvousAddress("lo:[fe80::1]:8", soon()).address.toSockaddr(storage);
  CHECK(reinterpret_cast<const sockaddr_in6&>(storage).sin6_scope_id == loopback);
}

TEST_CASE("an address is unchanged by a conversion to sockaddr and back") {
  for (const char* text : {"127.0.0.1:1", "[::1]:65535"}) {
    const SocketAddress address = parseRendezvousAddress(text, soon()).address;
    CHECK(address.isLoopback());
    sockaddr_storage storage;
    address.toSockaddr(storage);
    CHECK(SocketAddress::fromSockaddr(reinterpret_cast<sockaddr*>(&storage)) == address);
  }
  sockaddr_storage storage;
  CHECK_THROWS_AS(SocketAddress{}.toSockaddr(storage), Error);
  CHECK_FALSE(parseRendezvousAddress("[::2]:1", soon()).address.isLoopback());
  CHECK_FALSE(parseRendezvousAddress("128.0.0.1:1", soon()).address.isLoopback());
  CHECK(parseRendezvousAddress("[fe80::1]:1", soon()).address.isLinkLocal());
}

TEST_CASE("interface filters: prefixes, exact names, exclusions") {
  CHECK(InterfaceFilter("eth").matches("eth0"));
  CHECK(InterfaceFilter("ib,eth").matches("eth1"));
  CHECK_FALSE(InterfaceFilter("eth").matches("veth0"));
  CHECK(InterfaceFilter("=eth0").matches("eth0"));
  CHECK_FALSE(InterfaceFilter("=eth0").matches("eth01"));
  CHECK_FALSE(InterfaceFilter("^docker,lo").matches("docker0"));
  CHECK_FALSE(InterfaceFilter("^docker,lo").matches("lo"));
  CHECK(InterfaceFilter("^docker,lo").matches("eth0"));
  CHECK(InterfaceFilter("^=eth0").matches("eth01"));
  CHECK_FALSE(InterfaceFilter("^=eth0").matches("eth0"));
}

TEST_CASE("an interface is found, or the error lists the available ones") {
  CHECK(chooseLocalAddress("=lo", "AF_INET").toString() == "127.0.0.1:0");
  CHECK(chooseLocalAddress("", "").family != SocketAddress::Family::None);
  CHECK_THROWS_WITH_AS(chooseLocalAddress("=nosuchif", ""), doctest::Contains("this host has: "), Error);
  const auto messageOf = [](const std::string& interfaces, const std::string& family) {
    try {
      chooseLocalAddress(interfaces, family);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  // A name of an address, which has no "=", and what a variable has.
  const std::string text = messageOf("=nosuchif", "");
  CHECK(text.starts_with("no network interface fits the name \"nosuchif\", which MSCCLPP_SOCKET_IFNAME or the"));
  CHECK(text.find("MSCCLPP_SOCKET_FAMILY") == std::string::npos);
  CHECK(messageOf("nosuchif,other", "AF_INET6")
            .starts_with("no network interface fits MSCCLPP_SOCKET_IFNAME, \"nosuchif,other\", and "
                         "MSCCLPP_SOCKET_FAMILY, \"AF_INET6\"; this host has: "));
  // An interface is listed once, however many addresses it has.
  const std::string list = text.substr(text.find("has: ") + 5);
  CHECK(list.find("lo") != std::string::npos);
  CHECK(list.find("lo,") == list.rfind("lo,"));
}
