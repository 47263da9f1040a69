// The verbs devices of this machine, in the order of the transports IB0, IB1, ..., and their distances to each GPU.
#include "host/transport/verbs/device_list.hpp"
#include "host/transport/verbs/sysfs.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/base/transport.hpp"
#include "mscclpp/host/transport/ib_devices.hpp"
#include "report.hpp"

namespace mscclpp::info {

namespace {

using detail::ib::PciDistance;

std::string nameOfLevel(PciDistance::Level level) {
  switch (level) {
    case PciDistance::Level::SameRootPort:
      return "samePort";
    case PciDistance::Level::SameHostBridge:
      return "sameHostBridge";
    case PciDistance::Level::SameNumaNode:
      return "sameNumaNode";
    case PciDistance::Level::System:
      break;
  }
  return "elsewhere";
}

}  // namespace

Json queryNics(const Json& gpus) {
  Json report{{"verbs", {{"built", true}, {"error", nullptr}}}, {"nics", Json::array()}};
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
      report["nics"].push_back({{"name", devices[i]},
                                {"transport", i < 8 ? Json(nameOf(transport)) : Json(nullptr)},
                                {"gids", gids},
                                {"distances", distances}});
    }
    if (devices.empty()) report["verbs"]["error"] = "no verbs device, or no libibverbs to list them";
  } catch (const BaseError& error) {
    report["verbs"]["error"] = error.what();
  }
  return report;
}

Json chooseInterHostTransports(const Json& gpus, const Json& nics) {
  Json choices = Json::array();
  if (gpus.empty()) {
    const bool any = !nics.empty();
    choices.push_back(
        {{"gpu", nullptr},
         {"transport", any ? "IB0" : "Ethernet"},
         {"reason", any ? "the first verbs device; CPU ranks have no nearest device" : "no verbs device: TCP"}});
  }
  for (const Json& gpu : gpus) {
    if (nics.empty()) {
      choices.push_back({{"gpu", gpu["index"]}, {"transport", "Ethernet"}, {"reason", "no verbs device: TCP"}});
      continue;
    }
    Json choice{{"gpu", gpu["index"]}};
    try {
      const Transport nearest = nearestIBTransport(Device(DeviceType::GPU, gpu["index"]));
      choice["transport"] = nameOf(nearest);
      choice["reason"] = getIBDeviceName(nearest) + " is nearest by PCIe; GPUs share equally near devices round-robin";
    } catch (const BaseError& error) {
      choice["transport"] = "Ethernet";
      choice["reason"] = error.what();
    }
    choices.push_back(choice);
  }
  return choices;
}

}  // namespace mscclpp::info
