// Stands in for host/transport/verbs/ in a build without it: there are no verbs devices, and every use is a clear error.
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/ib_devices.hpp"
#include "network.hpp"

namespace mscclpp {

namespace {

[[noreturn]] void noVerbs(const std::string& what) {
  throw Error(what +
                  ": this build of mscclpp has no verbs transport; build it with -Drdma=enabled, or use "
                  "Transport::Ethernet (TCP) between hosts",
              ErrorCode::InvalidUsage);
}

}  // namespace

int getIBDeviceCount() {
  return 0;
}
std::string getIBDeviceName(Transport ibTransport) {
  noVerbs(nameOf(ibTransport));
}
Transport getIBTransportByDeviceName(const std::string& ibDeviceName) {
  noVerbs("'" + ibDeviceName + "'");
}
Transport nearestIBTransport(const Device&) {
  noVerbs("nearestIBTransport");
}

std::shared_ptr<detail::Network> detail::openVerbs(Transport transport) {
  noVerbs(nameOf(transport));
}

}  // namespace mscclpp
