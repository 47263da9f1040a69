// The verbs devices of this machine, in the order of the transports IB0, IB1, ..., and how far each is from each GPU.
#include "facts.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/ib_devices.hpp"
#include "mscclpp/host/transport.hpp"
#include "transport/verbs/device_list.hpp"
#include "transport/verbs/sysfs.hpp"

namespace mscclpp::info {

namespace {

using detail::ib::PciDistance;

std::string nameOfLevel(PciDistance::Level level) {
  switch (level) {
    case PciDistance::Level::SamePort:
      return "samePort";
    case PciDistance::Level::SameHostBridge:
      return "sameHostBridge";
    case PciDistance::Level::SameNumaNode:
      return "sameNumaNode";
    case PciDistance::Level::Elsewhere:
      break;
  }
  return "elsewhere";
}

}  // namespace

Json gatherNics(const Json& gpus) {
  Json facts{{"verbs", {{"built", true}, {"problem", nullptr}}}, {"nics", Json::array()}};
  try {
    const detail::ib::Sysfs sysfs;
    const std::vector<std::string> devices = detail::ib::deviceNames();
    for (std::size_t i = 0; i < devices.size(); ++i) {
      Json distances = Json::array();
      for (const Json& gpu : gpus) {
        const PciDistance distance = sysfs.distance(devices[i], gpu["pciBusId"]);
        distances.push_back(
            {{"gpu", gpu["index"]}, {"level", nameOfLevel(distance.level)}, {"bridges", distance.hops}});
      }
      const auto transport = static_cast<Transport>(static_cast<int>(Transport::IB0) + static_cast<int>(i));
      Json gids = Json::array();
      for (const auto& entry : sysfs.gids(devices[i], 1)) gids.push_back(detail::ib::nameOf(entry.gid));
      facts["nics"].push_back({{"name", devices[i]},
                               {"transport", i < 8 ? Json(nameOf(transport)) : Json(nullptr)},
                               {"gids", gids},
                               {"distances", distances}});
    }
    if (devices.empty()) facts["verbs"]["problem"] = "no verbs device, or no libibverbs to list them";
  } catch (const BaseError& error) {
    facts["verbs"]["problem"] = error.what();
  }
  return facts;
}

Json chooseBetweenHosts(const Json& gpus, const Json& nics) {
  Json choices = Json::array();
  if (gpus.empty()) {
    const bool any = !nics.empty();
    choices.push_back(
        {{"gpu", nullptr},
         {"transport", any ? "IB0" : "Ethernet"},
         {"why", any ? "the first verbs device; CPU ranks have no nearest one" : "no verbs device: TCP"}});
  }
  for (const Json& gpu : gpus) {
    if (nics.empty()) {
      choices.push_back({{"gpu", gpu["index"]}, {"transport", "Ethernet"}, {"why", "no verbs device: TCP"}});
      continue;
    }
    Json choice{{"gpu", gpu["index"]}};
    try {
      const Transport nearest = nearestIBTransport(Device(DeviceType::GPU, gpu["index"]));
      choice["transport"] = nameOf(nearest);
      choice["why"] = getIBDeviceName(nearest) + " is the nearest by PCIe, or shares that place in turn";
    } catch (const BaseError& error) {
      choice["transport"] = "Ethernet";
      choice["why"] = error.what();
    }
    choices.push_back(choice);
  }
  return choices;
}

}  // namespace mscclpp::info
