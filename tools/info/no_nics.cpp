// Replaces nics.cpp in a build without the verbs transport.
#include "report.hpp"

namespace mscclpp::info {

Json queryNics(const Json&) {
  return {{"verbs", {{"built", false}, {"error", "this build has no verbs transport: build with -Drdma=enabled"}}},
          {"nics", Json::array()}};
}

Json chooseInterHostTransports(const Json& gpus, const Json&) {
  const char* reason = "this build has no verbs transport: TCP";
  Json choices = Json::array();
  if (gpus.empty()) choices.push_back({{"gpu", nullptr}, {"transport", "Ethernet"}, {"reason", reason}});
  for (const Json& gpu : gpus)
    choices.push_back({{"gpu", gpu["index"]}, {"transport", "Ethernet"}, {"reason", reason}});
  return choices;
}

}  // namespace mscclpp::info
