#include "mscclpp/host/numa.hpp"

#include <sched.h>

#include <cerrno>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>

#include "gpu_backend.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp {

namespace {

std::string firstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Takes the number off the front of text; false if there is none.
bool takeNumber(std::string_view& text, int& number) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

// The kernel's form of a set of CPUs: "0-3,8,10-11".
cpu_set_t parseCpus(std::string_view list) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  int first = 0;
  while (takeNumber(list, first)) {
    int last = first;
    if (list.starts_with('-')) {
      list.remove_prefix(1);
      takeNumber(list, last);
    }
    for (int cpu = first; cpu <= last && cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &cpus);
    if (!list.starts_with(',')) break;
    list.remove_prefix(1);
  }
  return cpus;
}

}  // namespace

int getDeviceNumaNode(int deviceId) {
  const std::string text = firstLine("/sys/bus/pci/devices/" + detail::gpuPciAddress(deviceId) + "/numa_node");
  std::string_view rest = text;
  int node = -1;
  return takeNumber(rest, node) ? node : -1;
}

void numaBind(int node) {
  const std::string list =
      node < 0 ? "" : firstLine("/sys/devices/system/node/node" + std::to_string(node) + "/cpulist");
  const cpu_set_t near = parseCpus(list);
  if (CPU_COUNT(&near) == 0) {
    throw Error("numaBind: there is no NUMA node " + std::to_string(node) + " with CPUs", ErrorCode::InvalidUsage);
  }
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) throw SysError("sched_getaffinity", errno);
  cpu_set_t chosen;
  CPU_AND(&chosen, &near, &allowed);
  if (CPU_COUNT(&chosen) == 0) {
    throw Error("numaBind: this thread may not run on any CPU of NUMA node " + std::to_string(node),
                ErrorCode::InvalidUsage);
  }
  if (::sched_setaffinity(0, sizeof(chosen), &chosen) != 0) throw SysError("sched_setaffinity", errno);
}

}  // namespace mscclpp
