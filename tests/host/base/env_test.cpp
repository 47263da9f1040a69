// Environment variables: defaults, parsed values, and error messages that list the allowed values.
#include "mscclpp/host/base/env.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "mscclpp/host/base/error.hpp"

using namespace mscclpp;
using namespace std::chrono_literals;

namespace {

// Sets an environment variable for the lifetime of the object.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

std::string errorOf(const char* name, const char* value) {
  const Variable variable(name, value);
  try {
    Env environment;
  } catch (const Error& error) {
    CHECK(error.getErrorCode() == ErrorCode::InvalidUsage);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("unset variables have defaults") {
  const Variable home("HOME", "/home/someone"), caches("XDG_CACHE_HOME", "");
  const Variable empty("MSCCLPP_IB_GID_INDEX", "");
  const Env environment;
  CHECK(environment.logLevel == "ERROR");
  CHECK(environment.logSubsys == "ALL");
  const Variable older("MSCCLPP_DEBUG", "INFO"), olderSubsys("MSCCLPP_DEBUG_SUBSYS", "NET");
  CHECK(Env().logLevel.empty());
  CHECK(Env().logSubsys.empty());
  CHECK(environment.ibvMode == "host");
  CHECK(environment.ibGidIndex == -1);
  CHECK(environment.cacheDir == "/home/someone/.cache/mscclpp");
  CHECK(environment.bootstrapTimeout == 30s);
  CHECK(environment.heartbeatTimeout == 5s);
  CHECK(environment.waitTimeout == 30s);
  CHECK_FALSE(environment.forceDisableNvls);
  CHECK_FALSE(environment.ncclSymmetricMemory);
  CHECK(environment.ncclDevice == "gpu");
  CHECK(environment.ncclVersion == 22809);
  CHECK(environment.ncclTimeout == 24h);
  CHECK(environment.ncclMaxCtas == 0);
}

TEST_CASE("values are parsed into their types") {
  const Variable level("MSCCLPP_LOG_LEVEL", "info"), subsystems("MSCCLPP_LOG_SUBSYS", "^net,CONN"),
      gid("MSCCLPP_IB_GID_INDEX", "3"), wait("MSCCLPP_WAIT_TIMEOUT", "2.5"), beat("MSCCLPP_HEARTBEAT_TIMEOUT", "0"),
      gdr("MSCCLPP_FORCE_DISABLE_GDR", "yes"), fallback("MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION", "allreduce,broadcast"),
      cache("MSCCLPP_CACHE_DIR", "/scratch");
  const Env environment;
  CHECK(environment.logLevel == "INFO");
  CHECK(environment.logSubsys == "^NET,CONN");
  CHECK(environment.ibGidIndex == 3);
  CHECK(environment.waitTimeout == 2500ms);
  CHECK(environment.heartbeatTimeout == 0ms);
  CHECK(environment.forceDisableGdr);
  CHECK(environment.forceNcclFallbackOperation == "allreduce,broadcast");
  CHECK(environment.cacheDir == "/scratch");
}

TEST_CASE("files are kept where XDG_CACHE_HOME says, unless MSCCLPP_CACHE_DIR is set") {
  const Variable home("HOME", "/home/someone");
  {
    const Variable caches("XDG_CACHE_HOME", "/caches");
    CHECK(Env().cacheDir == "/caches/mscclpp");
    const Variable own("MSCCLPP_CACHE_DIR", "/scratch");
    CHECK(Env().cacheDir == "/scratch");
  }
  const Variable relative("XDG_CACHE_HOME", "caches");
  CHECK(Env().cacheDir == "/home/someone/.cache/mscclpp");
}

TEST_CASE("multicast is disabled by either variable") {
  {
    const Variable ours("MSCCLPP_FORCE_DISABLE_NVLS", "1");
    CHECK(Env().forceDisableNvls);
  }
  {
    const Variable nccl("NCCL_NVLS_ENABLE", "0");
    CHECK(Env().forceDisableNvls);
  }
  const Variable nccl("NCCL_NVLS_ENABLE", "1");
  CHECK_FALSE(Env().forceDisableNvls);
}

TEST_CASE("the network that NCCL's variables name is the default") {
  const Variable ncclName("NCCL_SOCKET_IFNAME", "^docker,lo"), ncclFamily("NCCL_SOCKET_FAMILY", "AF_INET6");
  CHECK(Env().socketIfname == "^docker,lo");
  CHECK(Env().socketFamily == "AF_INET6");
  const Variable name("MSCCLPP_SOCKET_IFNAME", "=eth0"), family("MSCCLPP_SOCKET_FAMILY", "AF_INET");
  CHECK(Env().socketIfname == "=eth0");
  CHECK(Env().socketFamily == "AF_INET");
}

TEST_CASE("an invalid value is rejected, and the message lists the allowed values") {
  CHECK(errorOf("MSCCLPP_LOG_LEVEL", "LOUD") ==
        "MSCCLPP_LOG_LEVEL=LOUD is not valid; allowed is NONE, ERROR, WARN, INFO, DEBUG "
        "(mscclpp failure: InvalidUsage)");
  CHECK(errorOf("MSCCLPP_LOG_SUBSYS", "NET,") != "");
  CHECK(errorOf("MSCCLPP_LOG_SUBSYS", "^NOPE") != "");
  CHECK(errorOf("MSCCLPP_DEBUG", "TRUE") != "");
  CHECK(errorOf("MSCCLPP_SOCKET_FAMILY", "IPv4") != "");
  CHECK(errorOf("MSCCLPP_IBV_MODE", "device") != "");
  CHECK(errorOf("MSCCLPP_FORCE_DISABLE_NVLS", "2") != "");
  CHECK(errorOf("MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION", "alltoall") != "");
  for (const char* number : {"-1", "256", "1x", "0x1", " 1", "99999999999999999999"}) {
    CAPTURE(number);
    CHECK(errorOf("MSCCLPP_IB_GID_INDEX", number) ==
          std::string("MSCCLPP_IB_GID_INDEX=") + number +
              " is not valid; allowed is a whole number from 0 to 255 (mscclpp failure: InvalidUsage)");
  }
  for (const char* seconds : {"0", "-3", "nan", "inf", "1e9", "30s", "0.0001"}) {
    CAPTURE(seconds);
    CHECK(errorOf("MSCCLPP_WAIT_TIMEOUT", seconds).find("a number of seconds from 0.001 to 1000000") !=
          std::string::npos);
  }
}

TEST_CASE("env() reads the environment once") {
  const auto first = env();
  const Variable gid("MSCCLPP_IB_GID_INDEX", "9");
  CHECK(env() == first);
  CHECK(env()->ibGidIndex == -1);
}
