#include "mscclpp/kernels/plan/file.hpp"

#include <fstream>
#include <iterator>

#include "host/base/error_message.hpp"
#include "message.hpp"
#include "mscclpp/kernels/plan/json.hpp"
#include "mscclpp/kernels/plan/text.hpp"
#include "mscclpp/kernels/plan/xml.hpp"

namespace mscclpp::plan {

NamedPlan fromFile(const std::string& path) {
  std::string content;
  bool isRead = false;
  try {
    std::ifstream file(path, std::ios::binary);
    content.assign(std::istreambuf_iterator<char>(file), {});
    isRead = static_cast<bool>(file);
  } catch (const std::ios_base::failure&) {  // a folder
  }
  if (!isRead) reject("the file ", path, " cannot be read");
  const std::size_t first = content.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) reject("the file ", path, " is empty");
  try {
    switch (content[first]) {
      case '{':
      case '[':
        return fromJson(content);
      case '<':
        return fromXml(content);
      default:
        return fromText(content);
    }
  } catch (const BaseError& error) {
    throw Error("the file " + path + ": " + mscclpp::detail::messageOf(error), mscclpp::detail::codeOf(error));
  }
}

}  // namespace mscclpp::plan
