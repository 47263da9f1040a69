#include "tuning_table.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::kernels {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* formatName = "mscclpp tuning 1";
constexpr double noise = 0.02;

/// The fastest algorithm, or `last` if that is as fast within the noise; empty if there is none.
std::string fastest(const std::map<std::string, double>& times, const std::string& last) {
  const auto best =
      std::min_element(times.begin(), times.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (best == times.end()) return {};
  const auto kept = times.find(last);
  return kept != times.end() && kept->second <= best->second * (1 + noise) ? last : best->first;
}

Json readOrMake(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Json{{"format", formatName}, {"tables", Json::array()}};
  try {
    Json json = Json::parse(file);
    bool isUsable = json.at("format").get<std::string>() == formatName && json.at("tables").is_array();
    for (const Json& table : json.at("tables")) isUsable = isUsable && table.is_object();
    if (isUsable) return json;
  } catch (const Json::exception&) {
    // reported below
  }
  throw Error(path + " is there, and is no tuning file: name another one",
              ErrorCode::InvalidUsage);
}

}  // namespace

void TuningTable::requireUsable(const std::string& path) {
  readOrMake(path);
}

void TuningTable::add(std::size_t bytes, const std::string& algorithm, bool needsRegistration, bool isUnlimited,
                      double microseconds) {
  if (isUnlimited) unlimited_.insert(algorithm);
  Times& times = sizes_[bytes];
  (needsRegistration ? times.registered : times.plain)[algorithm] = microseconds;
}

std::vector<TuningTable::Choice> TuningTable::choices() const {
  std::vector<Choice> choices;
  std::string lastPlain;
  std::string lastRegistered;
  for (const auto& [bytes, times] : sizes_) {
    const std::string plain = fastest(times.plain, lastPlain);
    std::string registered = fastest(times.registered, lastRegistered);
    if (!registered.empty() && !plain.empty() &&
        times.registered.at(registered) > times.plain.at(plain) * (1 - noise)) {
      registered.clear();
    }
    const bool isSame = plain == lastPlain && registered == lastRegistered && !choices.empty();
    if (isSame) {
      // The choices of the last size are for this one too.
      const std::size_t before = choices.back().maxBytes;
      for (Choice& choice : choices) {
        if (choice.maxBytes == before) choice.maxBytes = bytes;
      }
    } else {
      if (!registered.empty()) choices.push_back({bytes, registered});
      if (!plain.empty()) choices.push_back({bytes, plain});
    }
    lastPlain = plain;
    lastRegistered = registered;
  }
  for (Choice& choice : choices) {
    if (choice.maxBytes == sizes_.rbegin()->first && unlimited_.count(choice.algorithm) > 0) choice.maxBytes = 0;
  }
  return choices;
}

void TuningTable::writeTo(const std::string& path, const std::string& deviceName, int ranks,
                          CollectiveType collective) const {
  Json json = readOrMake(path);
  Json tables = Json::array();
  for (const Json& table : json.at("tables")) {
    const Json key{{"device", deviceName}, {"ranks", ranks}, {"collective", nameOf(collective)}};
    const auto hasSame = [&](const char* name) { return table.contains(name) && table.at(name) == key.at(name); };
    const bool isReplaced = hasSame("device") && hasSame("ranks") && hasSame("collective");
    if (!isReplaced) tables.push_back(table);
  }
  Json list = Json::array();
  for (const Choice& choice : choices()) {
    Json entry = Json::object();
    if (choice.maxBytes != 0) entry["maxBytes"] = choice.maxBytes;
    entry["algorithm"] = choice.algorithm;
    list.push_back(entry);
  }
  tables.push_back({{"device", deviceName}, {"ranks", ranks}, {"collective", nameOf(collective)}, {"choices", list}});
  json["tables"] = tables;
  std::ofstream file(path, std::ios::trunc);
  file << json.dump(1) << '\n';
  if (!file.flush()) throw SysError("cannot write the tuning file " + path, errno);
}

}  // namespace mscclpp::kernels
