#include "host/transport/transport_table.hpp"

#include <algorithm>

namespace mscclpp::detail {

TransportTable::TransportTable() {
  backends_.push_back(makeSharedMemoryTransport(exports_));
  backends_.push_back(makeCudaIpcTransport(exports_));
  for (int index = static_cast<int>(Transport::IB0); index <= static_cast<int>(Transport::IB7); ++index) {
    backends_.push_back(makeVerbsTransport(static_cast<Transport>(index)));
  }
  backends_.push_back(makeTcpTransport());
}

const TransportTable& TransportTable::forImport() {
  static const auto* table = new TransportTable;  // never destroyed: static objects may import memory late
  return *table;
}

TransportBackend* TransportTable::find(Transport transport) const {
  const auto found = std::find_if(backends_.begin(), backends_.end(),
                                  [=](const auto& backend) { return backend->transport() == transport; });
  return found == backends_.end() ? nullptr : found->get();
}

TransportFlags TransportTable::mapping() const {
  TransportFlags flags;
  for (const auto& backend : backends_) {
    if (backend->properties().mapsMemory) flags |= backend->transport();
  }
  return flags;
}

}  // namespace mscclpp::detail
