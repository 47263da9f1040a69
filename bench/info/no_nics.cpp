// Stands in for nics.cpp in a build without the verbs transport.
#include "facts.hpp"

namespace mscclpp::info {

Json gatherNics(const Json&) {
  return {{"verbs", {{"built", false}, {"problem", "this build has no verbs transport: build with -Drdma=enabled"}}},
          {"nics", Json::array()}};
}

Json chooseBetweenHosts(const Json& gpus, const Json&) {
  const char* why = "this build has no verbs transport: TCP";
  Json choices = Json::array();
  if (gpus.empty()) choices.push_back({{"gpu", nullptr}, {"transport", "Ethernet"}, {"why", why}});
  for (const Json& gpu : gpus) choices.push_back({{"gpu", gpu["index"]}, {"transport", "Ethernet"}, {"why", why}});
  return choices;
}

}  // namespace mscclpp::info
