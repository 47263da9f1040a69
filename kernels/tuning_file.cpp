#include "tuning_file.hpp"

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "algorithms.hpp"
#include "call_arguments.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::kernels {

namespace {

using Json = nlohmann::json;

constexpr const char* formatName = "mscclpp tuning 1";

CollectiveType requireCollective(const std::string& name) {
  if (const auto collective = findCollective(name)) return *collective;
  throw std::runtime_error("there is no collective \"" + name + "\"");
}

void readTable(const Json& table, std::vector<MeasuredChoice>& choices) {
  const CollectiveType collective = requireCollective(table.at("collective").get<std::string>());
  bool isFirst = true;
  std::size_t last = 0;
  for (const Json& choice : table.at("choices")) {
    const auto name = choice.at("algorithm").get<std::string>();
    const std::size_t index = indexOf(collective, name);
    if (index == algorithmTable.size()) {
      throw std::runtime_error(std::string(nameOf(collective)) + " has no algorithm \"" + name + "\"");
    }
    const std::size_t maxBytes = choice.contains("maxBytes") ? choice.at("maxBytes").get<std::size_t>() : noLimit;
    if (isTooLong(algorithmTable[index], maxBytes) ||
        (maxBytes == noLimit && algorithmTable[index].maxBytes != noLimit)) {
      throw std::runtime_error(std::string(nameOf(collective)) + ": " + name + " supports messages of up to " +
                               std::to_string(algorithmTable[index].maxBytes) + " bytes only");
    }
    if (maxBytes != noLimit && maxBytes < last) {
      throw std::runtime_error(std::string(nameOf(collective)) +
                               ": the choices are not in the order of growing maxBytes");
    }
    last = maxBytes;
    choices.push_back({isFirst, maxBytes, index});
    isFirst = false;
  }
}

}  // namespace

std::vector<MeasuredChoice> readTuningFile(const std::string& path, const std::string& deviceName, int ranks) {
  std::vector<MeasuredChoice> choices;
  try {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("it cannot be opened");
    const Json json = Json::parse(file);
    if (json.at("format").get<std::string>() != formatName) {
      throw std::runtime_error(std::string("its format is not \"") + formatName + "\"");
    }
    for (const Json& table : json.at("tables")) {
      // Tables of other devices and numbers of ranks are checked too: an error is found where the file is made.
      std::vector<MeasuredChoice> found;
      readTable(table, found);
      if (table.at("device").get<std::string>() != deviceName || table.at("ranks").get<int>() != ranks) continue;
      choices.insert(choices.end(), found.begin(), found.end());
    }
  } catch (const std::runtime_error& error) {
    throw Error("MSCCLPP_TUNING_FILE=" + path + ": " + error.what() + "; mscclpp-perf makes such a file with --tune",
                ErrorCode::InvalidUsage);
  } catch (const Json::exception& error) {
    throw Error("MSCCLPP_TUNING_FILE=" + path + " is not a tuning file: " + error.what() +
                    "; mscclpp-perf makes one with --tune",
                ErrorCode::InvalidUsage);
  }
  return choices;
}

}  // namespace mscclpp::kernels
