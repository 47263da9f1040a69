#include "plan_file.hpp"

#include <fstream>
#include <iostream>
#include <iterator>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/kernels/plan/json.hpp"
#include "mscclpp/kernels/plan/svg.hpp"
#include "mscclpp/kernels/plan/text.hpp"
#include "mscclpp/kernels/plan/xml.hpp"

namespace mscclpp::plan_tool {

std::string readFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw Error(path + " cannot be read", ErrorCode::InvalidUsage);
  if (text.empty()) throw Error(path + " is empty", ErrorCode::InvalidUsage);
  return text;
}

void writeFile(const std::string& path, const std::string& text) {
  if (path == "-") {
    std::cout << text;
    return;
  }
  std::ofstream file(path, std::ios::binary);
  if (!(file << text)) throw Error(path + " cannot be written", ErrorCode::InvalidUsage);
}

void writePlan(const std::string& path, const plan::NamedPlan& plan, std::uint64_t bytes,
               const plan::Topology& topology) {
  if (path.ends_with(".json")) return writeFile(path, plan::toJson(plan) + "\n");
  if (path.ends_with(".xml")) return writeFile(path, plan::toXml(plan));
  if (path.ends_with(".svg")) return writeFile(path, plan::toSvg(plan, plan::simulate(plan, bytes, topology)));
  writeFile(path, plan::toText(plan));
}

}  // namespace mscclpp::plan_tool
