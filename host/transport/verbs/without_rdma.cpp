// Replaces host/transport/verbs/ in a build without it: there are no verbs devices. Queries return none; using a device
// is an error.
#include "host/transport/unavailable_transport.hpp"
#include "host/transport/verbs/verbs_properties.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/transport/ib_devices.hpp"

namespace mscclpp {

namespace {

constexpr char noVerbsText[] =
    "this build of mscclpp has no verbs transport; build it with -Drdma=enabled, or use Transport::Ethernet (TCP) "
    "between hosts";

[[noreturn]] void noVerbs(const std::string& what) {
  throw Error(what + ": " + noVerbsText, ErrorCode::InvalidUsage);
}

}  // namespace

int getIBDeviceCount() {
  return 0;
}
std::string getIBDeviceName(Transport) {
  return {};
}
Transport getIBTransportByDeviceName(const std::string&) {
  return Transport::Unknown;
}
Transport nearestIBTransport(const Device&) {
  noVerbs("nearestIBTransport");
}

std::unique_ptr<detail::TransportBackend> detail::makeVerbsTransport(Transport transport) {
  return std::make_unique<UnavailableTransport>(transport, verbsProperties, noVerbsText);
}

}  // namespace mscclpp
