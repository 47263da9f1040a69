#include "plan_file.hpp"

#include <fstream>
#include <iostream>
#include <sstream>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/kernels/plan/json.hpp"
#include "mscclpp/kernels/plan/svg.hpp"
#include "mscclpp/kernels/plan/text.hpp"
#include "mscclpp/kernels/plan/xml.hpp"

namespace mscclpp::plan_tool {

std::string readFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!(text << file.rdbuf())) throw Error(path + " cannot be read", ErrorCode::InvalidUsage);
  return text.str();
}

void writeFile(const std::string& path, const std::string& text) {
  if (path == "-") {
    std::cout << text;
    return;
  }
  std::ofstream file(path, std::ios::binary);
  if (!(file << text)) throw Error(path + " cannot be written", ErrorCode::InvalidUsage);
}

plan::NamedPlan readPlan(const std::string& path) {
  const std::string text = readFile(path);
  if (path.ends_with(".json")) return plan::fromJson(text);
  if (path.ends_with(".xml")) return plan::fromXml(text);
  return plan::fromText(text);
}

void writePlan(const std::string& path, const plan::NamedPlan& plan, std::uint64_t bytes,
               const plan::Topology& topology) {
  if (path.ends_with(".json")) return writeFile(path, plan::toJson(plan) + "\n");
  if (path.ends_with(".xml")) return writeFile(path, plan::toXml(plan));
  if (path.ends_with(".svg")) return writeFile(path, plan::toSvg(plan, plan::simulate(plan, bytes, topology)));
  writeFile(path, plan::toText(plan));
}

}  // namespace mscclpp::plan_tool
