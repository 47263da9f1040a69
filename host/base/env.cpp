#include "mscclpp/host/base/env.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp {

namespace {

std::string readText(const char* name, const char* fallback = "") {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : fallback;
}

// A default that applies only if an older variable is not set.
const char* defaultUnlessSet(const char* legacyName, const char* fallback) {
  return readText(legacyName).empty() ? fallback : "";
}

[[noreturn]] void throwInvalidValue(const char* name, const std::string& value, const std::string& allowed) {
  throw Error(std::string(name) + "=" + value + " is not valid; allowed is " + allowed, ErrorCode::InvalidUsage);
}

std::string toUpper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

using Choices = std::initializer_list<std::string_view>;

std::string join(Choices choices) {
  std::string text;
  for (std::string_view choice : choices) text += (text.empty() ? "" : ", ") + std::string(choice);
  return text;
}

bool contains(Choices choices, std::string_view value) {
  return std::find(choices.begin(), choices.end(), value) != choices.end();
}

std::string readChoice(const char* name, Choices choices, const char* fallback = "") {
  std::string value = readText(name, fallback);
  if (!value.empty() && !contains(choices, value)) throwInvalidValue(name, value, join(choices));
  return value;
}

// The same, ignoring case: the value is returned in upper case.
std::string readUpperCase(const char* name, Choices choices, const char* fallback = "") {
  const std::string value = readText(name, fallback);
  if (!value.empty() && !contains(choices, toUpper(value))) throwInvalidValue(name, value, join(choices));
  return toUpper(value);
}

void checkList(const char* name, const std::string& value, std::string_view items, Choices choices) {
  while (true) {
    const std::size_t comma = items.find(',');
    if (!contains(choices, items.substr(0, comma))) throwInvalidValue(name, value, "a comma list of " + join(choices));
    if (comma == std::string_view::npos) return;
    items.remove_prefix(comma + 1);
  }
}

std::string readList(const char* name, Choices choices, const char* fallback = "") {
  std::string value = readText(name, fallback);
  if (!value.empty()) checkList(name, value, value, choices);
  return value;
}

std::string readUpperCaseList(const char* name, Choices choices, const char* fallback = "") {
  const std::string value = readText(name, fallback);
  const std::string upperCase = toUpper(value);
  std::string_view items = upperCase;
  if (items.starts_with('^')) items.remove_prefix(1);
  if (!items.empty()) checkList(name, value, items, choices);
  return upperCase;
}

bool readBool(const char* name) {
  const std::string value = readText(name, "0");
  const std::string upperCase = toUpper(value);
  if (contains({"1", "TRUE", "YES", "ON"}, upperCase)) return true;
  if (contains({"0", "FALSE", "NO", "OFF"}, upperCase)) return false;
  throwInvalidValue(name, value, "0, 1, true, false, yes, no, on or off");
}

int readInt(const char* name, int low, int high, int fallback) {
  const std::string value = readText(name);
  if (value.empty()) return fallback;
  int number = 0;
  const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (status != std::errc() || end != value.data() + value.size() || number < low || number > high) {
    throwInvalidValue(name, value, "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return number;
}

enum class ZeroPolicy { Rejected, Allowed };

std::chrono::milliseconds readSeconds(const char* name, std::chrono::seconds fallback, ZeroPolicy zeroPolicy) {
  constexpr double maxSeconds = 1e6;  // eleven days: a deadline computed from it cannot overflow
  const std::string value = readText(name);
  if (value.empty()) return fallback;
  double seconds = 0;
  const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  const bool isNumber = status == std::errc() && end == value.data() + value.size() && std::isfinite(seconds);
  const bool inRange =
      isNumber && seconds <= maxSeconds && (seconds >= 0.001 || (seconds == 0 && zeroPolicy == ZeroPolicy::Allowed));
  if (!inRange) {
    throwInvalidValue(
        name, value,
        std::string("a number of seconds from 0.001 to 1000000") + (zeroPolicy == ZeroPolicy::Allowed ? ", or 0" : ""));
  }
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

std::string readCacheDir() {
  std::string value = readText("MSCCLPP_CACHE_DIR");
  if (!value.empty()) return value;
  const std::string caches = readText("XDG_CACHE_HOME");
  if (caches.starts_with('/')) return caches + "/mscclpp";  // its specification says to ignore relative paths
  const std::string home = readText("HOME", "/tmp");
  return home + "/.cache/mscclpp";
}

}  // namespace

Env::Env()
    : logLevel(readUpperCase("MSCCLPP_LOG_LEVEL", {"NONE", "ERROR", "WARN", "INFO", "DEBUG"},
                             defaultUnlessSet("MSCCLPP_DEBUG", "ERROR"))),
      logSubsys(readUpperCaseList("MSCCLPP_LOG_SUBSYS", {"ALL", "ENV", "GPU", "NET", "CONN", "EXEC", "NCCL", "ALGO"},
                                  defaultUnlessSet("MSCCLPP_DEBUG_SUBSYS", "ALL"))),
      logFile(readText("MSCCLPP_LOG_FILE")),
      debug(readUpperCase("MSCCLPP_DEBUG", {"VERSION", "WARN", "INFO", "ABORT", "TRACE"})),
      debugSubsys(
          readUpperCaseList("MSCCLPP_DEBUG_SUBSYS", {"ALL", "INIT", "COLL", "P2P", "SHM", "NET", "GRAPH", "TUNING",
                                                     "ENV", "ALLOC", "CALL", "MSCCLPP_EXECUTOR", "EXECUTOR"})),
      debugFile(readText("MSCCLPP_DEBUG_FILE")),
      hostid(readText("MSCCLPP_HOSTID")),
      // A site that names the network for NCCL names it for all libraries.
      socketFamily(
          readChoice(readText("MSCCLPP_SOCKET_FAMILY").empty() ? "NCCL_SOCKET_FAMILY" : "MSCCLPP_SOCKET_FAMILY",
                     {"AF_INET", "AF_INET6"})),
      socketIfname(readText("MSCCLPP_SOCKET_IFNAME", readText("NCCL_SOCKET_IFNAME").c_str())),
      commId(readText("MSCCLPP_COMM_ID")),
      bootstrapTimeout(readSeconds("MSCCLPP_BOOTSTRAP_TIMEOUT", std::chrono::seconds(30), ZeroPolicy::Rejected)),
      heartbeatTimeout(readSeconds("MSCCLPP_HEARTBEAT_TIMEOUT", std::chrono::seconds(5), ZeroPolicy::Allowed)),
      waitTimeout(readSeconds("MSCCLPP_WAIT_TIMEOUT", std::chrono::seconds(30), ZeroPolicy::Rejected)),
      hcaDevices(readText("MSCCLPP_HCA_DEVICES")),
      ibvSo(readText("MSCCLPP_IBV_SO")),
      ibvMode(readChoice("MSCCLPP_IBV_MODE", {"host", "host-no-atomic"}, "host")),
      ibGidIndex(readInt("MSCCLPP_IB_GID_INDEX", 0, 255, -1)),
      forceDisableGdr(readBool("MSCCLPP_FORCE_DISABLE_GDR")),
      algo(readText("MSCCLPP_ALGO")),
      tuningFile(readText("MSCCLPP_TUNING_FILE")),
      ll128(readChoice("MSCCLPP_LL128", {"auto", "on", "off"}, "auto")),
      // A site that disables multicast for NCCL disables it for all libraries.
      forceDisableNvls(readBool("MSCCLPP_FORCE_DISABLE_NVLS") || readText("NCCL_NVLS_ENABLE") == "0"),
      cudaIpcUseDefaultStream(readBool("MSCCLPP_CUDAIPC_USE_DEFAULT_STREAM")),
      ncclSharedLibPath(readText("MSCCLPP_NCCL_LIB_PATH")),
      forceNcclFallbackOperation(readList("MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION",
                                          {"all", "allreduce", "allgather", "broadcast", "reducescatter"})),
      ncclSymmetricMemory(readBool("MSCCLPP_NCCL_SYMMETRIC_MEMORY")),
      ncclDevice(readChoice("MSCCLPP_NCCL_DEVICE", {"gpu", "cpu"}, "gpu")),
      ncclVersion(readInt("MSCCLPP_NCCL_VERSION", 1, 999999, 22809)),
      ncclInfo(readBool("MSCCLPP_NCCL_INFO")),
      ncclTimeout(readSeconds("MSCCLPP_NCCL_TIMEOUT", std::chrono::hours(24), ZeroPolicy::Rejected)),
      ncclDumpDir(readText("MSCCLPP_NCCL_DUMP_DIR")),
      ncclDebug(toUpper(readText("NCCL_DEBUG"))),
      ncclMaxCtas(readInt("NCCL_MAX_CTAS", 1, 65535, 0)),
      nvrtcLibPath(readText("MSCCLPP_NVRTC_LIB_PATH")),
      includeDir(readText("MSCCLPP_INCLUDE_DIR")),
      ccclIncludeDir(readText("MSCCLPP_CCCL_INCLUDE_DIR")),
      cudaIncludeDir(readText("MSCCLPP_CUDA_INCLUDE_DIR")),
      cacheDir(readCacheDir()),
      npkitDumpDir(readText("MSCCLPP_NPKIT_DUMP_DIR")) {}

std::shared_ptr<Env> env() {
  static const std::shared_ptr<Env> instance = std::make_shared<Env>();
  return instance;
}

}  // namespace mscclpp
