// Addresses: text forms, interface filters, and the choice among this host's own.
#include "../../host/socket_address.hpp"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <netdb.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "mscclpp/host/error.hpp"

using namespace mscclpp;
using namespace mscclpp::detail;

namespace {

// How long the next getaddrinfo of a host name takes, at least: the library has its own answer to a slow resolver.
std::atomic<int> resolverDelay = 0;  // milliseconds

Deadline soon() {
  return Deadline::after(std::chrono::seconds(20));
}

}  // namespace

extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints, addrinfo** found) {
  if ((hints->ai_flags & AI_NUMERICHOST) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(resolverDelay));
  return reinterpret_cast<decltype(&getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"))(host, service, hints, found);
}

TEST_CASE("a resolver that does not answer costs no more than the deadline, and addresses do without") {
  resolverDelay = 20'000;
  const auto start = std::chrono::steady_clock::now();
  CHECK(parseMeetingPoint("127.0.0.1:5", soon()).address.isLoopback());
  try {
    parseMeetingPoint("localhost:5", Deadline::after(std::chrono::milliseconds(100)));
    FAIL("it was resolved");
  } catch (const Error& error) {
    CHECK(error.getErrorCode() == ErrorCode::Timeout);
    CHECK(std::string(error.what()).find("localhost was not resolved within 0.1 s") != std::string::npos);
  }
  std::atomic<bool> cancelled = true;
  CHECK_THROWS_AS(parseMeetingPoint("localhost:5", soon().orWhen(cancelled)), Error);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(15));
  resolverDelay = 0;
}

TEST_CASE("rendezvous addresses are read in all their forms") {
  struct Case {
    const char *text, *interface, *address;
  };
  for (const Case& expected :
       {Case{"10.1.2.3:77", "", "10.1.2.3:77"}, Case{"eth0:10.1.2.3:65535", "eth0", "10.1.2.3:65535"},
        Case{"[fe80::1]:8", "", "[fe80::1]:8"}, Case{"ib0:[2001:db8::5]:9", "ib0", "[2001:db8::5]:9"},
        Case{"localhost:5", "", "127.0.0.1:5"}}) {
    CAPTURE(expected.text);
    const MeetingPoint point = parseMeetingPoint(expected.text, soon());
    CHECK(point.interface == expected.interface);
    CHECK(point.address.toString() == expected.address);
  }
}

TEST_CASE("an address survives the way through the system's form") {
  for (const char* text : {"127.0.0.1:1", "[::1]:65535"}) {
    const SocketAddress address = parseMeetingPoint(text, soon()).address;
    CHECK(address.isLoopback());
    sockaddr_storage storage;
    address.toSockaddr(storage);
    CHECK(SocketAddress::fromSockaddr(reinterpret_cast<sockaddr*>(&storage)) == address);
  }
  sockaddr_storage storage;
  CHECK_THROWS_AS(SocketAddress{}.toSockaddr(storage), Error);
  CHECK_FALSE(parseMeetingPoint("[::2]:1", soon()).address.isLoopback());
  CHECK_FALSE(parseMeetingPoint("128.0.0.1:1", soon()).address.isLoopback());
  CHECK(parseMeetingPoint("[fe80::1]:1", soon()).address.isLinkLocal());
}

TEST_CASE("interface filters: prefixes, exact names, exclusions") {
  CHECK(InterfaceFilter("eth").admits("eth0"));
  CHECK(InterfaceFilter("ib,eth").admits("eth1"));
  CHECK_FALSE(InterfaceFilter("eth").admits("veth0"));
  CHECK(InterfaceFilter("=eth0").admits("eth0"));
  CHECK_FALSE(InterfaceFilter("=eth0").admits("eth01"));
  CHECK_FALSE(InterfaceFilter("^docker,lo").admits("docker0"));
  CHECK_FALSE(InterfaceFilter("^docker,lo").admits("lo"));
  CHECK(InterfaceFilter("^docker,lo").admits("eth0"));
  CHECK(InterfaceFilter("^=eth0").admits("eth01"));
  CHECK_FALSE(InterfaceFilter("^=eth0").admits("eth0"));
}

TEST_CASE("an interface is found, or the refusal lists what there is") {
  CHECK(chooseLocalAddress("=lo", "AF_INET").toString() == "127.0.0.1:0");
  CHECK(chooseLocalAddress("", "").family != SocketAddress::Family::None);
  CHECK_THROWS_WITH_AS(chooseLocalAddress("=nosuchif", ""), doctest::Contains("this host has: "), Error);
}
