// Addresses: text forms, interface filters, and the choice among this host's own.
#include "../../host/socket_address.hpp"

#include <doctest/doctest.h>

#include <string>

#include "mscclpp/host/error.hpp"

using namespace mscclpp;
using namespace mscclpp::detail;

TEST_CASE("rendezvous addresses are read in all their forms") {
  struct Case {
    const char *text, *interface, *address;
  };
  for (const Case& expected :
       {Case{"10.1.2.3:77", "", "10.1.2.3:77"}, Case{"eth0:10.1.2.3:65535", "eth0", "10.1.2.3:65535"},
        Case{"[fe80::1]:8", "", "[fe80::1]:8"}, Case{"ib0:[2001:db8::5]:9", "ib0", "[2001:db8::5]:9"},
        Case{"localhost:5", "", "127.0.0.1:5"}}) {
    CAPTURE(expected.text);
    const MeetingPoint point = parseMeetingPoint(expected.text);
    CHECK(point.interface == expected.interface);
    CHECK(point.address.toString() == expected.address);
  }
}

TEST_CASE("an address survives the way through the system's form") {
  for (const char* text : {"127.0.0.1:1", "[::1]:65535"}) {
    const SocketAddress address = parseMeetingPoint(text).address;
    CHECK(address.isLoopback());
    sockaddr_storage storage;
    address.toSockaddr(storage);
    CHECK(SocketAddress::fromSockaddr(reinterpret_cast<sockaddr*>(&storage)) == address);
  }
  sockaddr_storage storage;
  CHECK_THROWS_AS(SocketAddress{}.toSockaddr(storage), Error);
  CHECK_FALSE(parseMeetingPoint("[::2]:1").address.isLoopback());
  CHECK_FALSE(parseMeetingPoint("128.0.0.1:1").address.isLoopback());
  CHECK(parseMeetingPoint("[fe80::1]:1").address.isLinkLocal());
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
