#include "host/base/process_status.hpp"

#include <fstream>
#include <sstream>
#include <string>

namespace mscclpp::detail {

std::optional<ProcessStatus> statusOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  // The name, in parentheses, may contain any character. The state, which follows it, is field 3 of proc(5).
  const auto nameEnd = line.rfind(')');
  if (nameEnd == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(nameEnd + 1));
  ProcessStatus status{};
  std::string skipped;
  fields >> status.state >> status.parent >> skipped >> status.session;
  for (int field = 7; field < 20; ++field) fields >> skipped;
  fields >> status.threads >> skipped >> status.startTime;
  if (!fields) return std::nullopt;
  return status;
}

}  // namespace mscclpp::detail
