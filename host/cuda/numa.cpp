#include "mscclpp/host/cuda/numa.hpp"

#include <sched.h>

#include <cerrno>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>

#include "host/cuda/gpu_backend.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/base/logger.hpp"

namespace mscclpp {

namespace {

std::string firstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Parses a number at the start of `text` and removes it; false if there is none.
bool consumeNumber(std::string_view& text, int& number) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

// The kernel's format for a set of CPUs: "0-3,8,10-11".
cpu_set_t parseCpuList(std::string_view list) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  int first = 0;
  while (consumeNumber(list, first)) {
    int last = first;
    if (list.starts_with('-')) {
      list.remove_prefix(1);
      consumeNumber(list, last);
    }
    for (int cpu = first; cpu <= last && cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &cpus);
    if (!list.starts_with(',')) break;
    list.remove_prefix(1);
  }
  return cpus;
}

}  // namespace

int getDeviceNumaNode(int deviceId) {
  const std::string text = firstLine("/sys/bus/pci/devices/" + detail::gpuPciBusId(deviceId) + "/numa_node");
  std::string_view rest = text;
  int node = -1;
  return consumeNumber(rest, node) ? node : -1;
}

void numaBind(int node) {
  if (node == -1) {
    logMessage(LogLevel::Info, LogSubsystem::Env,
               "numaBind: the NUMA node is unknown (-1); the CPUs of the thread are not changed");
    return;
  }
  const std::string list =
      node < 0 ? "" : firstLine("/sys/devices/system/node/node" + std::to_string(node) + "/cpulist");
  const cpu_set_t nodeCpus = parseCpuList(list);
  if (CPU_COUNT(&nodeCpus) == 0) {
    throw Error("numaBind: NUMA node " + std::to_string(node) + " does not exist or has no CPUs",
                ErrorCode::InvalidUsage);
  }
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) throw SysError("sched_getaffinity", errno);
  cpu_set_t allowedNodeCpus;
  CPU_AND(&allowedNodeCpus, &nodeCpus, &allowed);
  if (CPU_COUNT(&allowedNodeCpus) == 0) {
    throw Error("numaBind: this thread may not run on any CPU of NUMA node " + std::to_string(node),
                ErrorCode::InvalidUsage);
  }
  if (::sched_setaffinity(0, sizeof(allowedNodeCpus), &allowedNodeCpus) != 0)
    throw SysError("sched_setaffinity", errno);
}

}  // namespace mscclpp
