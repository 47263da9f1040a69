// Environment variables, addresses and lists of interfaces: any text is parsed, or rejected with an error message.
//
// An input is a line of text for each variable, or for "address" and "interfaces".
#include <dlfcn.h>
#include <netdb.h>

#include <cstdlib>
#include <sstream>
#include <string>

#include "check.hpp"
#include "host/net/socket_address.hpp"
#include "mscclpp/host/base/env.hpp"

using namespace mscclpp;
using namespace mscclpp::fuzz;
using namespace std::chrono_literals;

namespace {

constexpr const char* variableNames[] = {
    "MSCCLPP_LOG_LEVEL",
    "MSCCLPP_LOG_SUBSYS",
    "MSCCLPP_DEBUG",
    "MSCCLPP_DEBUG_SUBSYS",
    "MSCCLPP_SOCKET_FAMILY",
    "MSCCLPP_BOOTSTRAP_TIMEOUT",
    "MSCCLPP_HEARTBEAT_TIMEOUT",
    "MSCCLPP_WAIT_TIMEOUT",
    "MSCCLPP_IBV_MODE",
    "MSCCLPP_IB_GID_INDEX",
    "MSCCLPP_FORCE_DISABLE_GDR",
    "MSCCLPP_ALGO",
    "MSCCLPP_TUNING_FILE",
    "MSCCLPP_LL128",
    "MSCCLPP_LOG_FILE",
    "MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION",
};

void readVariables(const std::string& text) {
  std::istringstream lines(text);
  std::string line;
  for (const char* name : variableNames) {
    if (std::getline(lines, line)) ::setenv(name, line.c_str(), 1);
  }
  accepts([] {
    const Env env;
    check(env.bootstrapTimeout >= 1ms && env.waitTimeout >= 1ms, "a timeout is not zero");
    check(env.bootstrapTimeout <= 1000000s && env.waitTimeout <= 1000000s, "a timeout ends");
    check(env.heartbeatTimeout >= 0ms && env.heartbeatTimeout <= 1000000s, "a heartbeat is no negative time");
    check(env.ibGidIndex >= -1 && env.ibGidIndex <= 255, "an index is in its range");
  });
  for (const char* name : variableNames) ::unsetenv(name);
}

void readAddress(const std::string& text) {
  const detail::Deadline soon = detail::Deadline::after(20s);
  accepts([&] {
    const detail::RendezvousAddress point = detail::parseRendezvousAddress(text, soon);
    const std::string shown = point.address.toString();
    if (point.address.scope != 0) return;
    const detail::RendezvousAddress again = detail::parseRendezvousAddress(shown, soon);
    check(again.address == point.address, "an address is read as it is shown");
  });
}

void readInterfaces(const std::string& text) {
  const detail::InterfaceFilter filter(text);
  const bool isExclusion = text.starts_with('^');
  if (!isExclusion && filter.matches("eth0")) check(text.find('e') != std::string::npos, "what is admitted was named");
}

}  // namespace

/// Replaces the system's, which would query name servers for the fuzzer's random names.
extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints, addrinfo** found) {
  static const auto real = reinterpret_cast<decltype(&getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  addrinfo numeric = *hints;
  numeric.ai_flags |= AI_NUMERICHOST;
  return real(host, service, &numeric, found);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (text.find('\0') != std::string::npos) return -1;  // an environment cannot contain it
  const std::size_t line = text.find('\n');
  const std::string kind = text.substr(0, line);
  const std::string rest = line == std::string::npos ? "" : text.substr(line + 1);
  if (kind == "address") {
    readAddress(rest);
  } else if (kind == "interfaces") {
    readInterfaces(rest);
  } else {
    readVariables(text);
  }
  return 0;
}
