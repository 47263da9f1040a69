// All transports, by their name in the public enumeration.
#pragma once

#include <memory>
#include <vector>

#include "host/memory/memory_transport.hpp"
#include "host/transport/transport_backend.hpp"
#include "mscclpp/host/base/transport.hpp"

namespace mscclpp::detail {

class TransportTable {
 public:
  TransportTable();
  /// The table for importing memory, which needs no context: mappings belong to the process, like its address space.
  static const TransportTable& forImport();

  /// Null for a value that is no transport.
  TransportBackend* find(Transport transport) const;
  /// Those that map memory come first: handles are serialised, and tried by peers, in this order.
  const std::vector<std::unique_ptr<TransportBackend>>& backends() const noexcept { return backends_; }
  /// The set of those that map memory.
  TransportFlags mapping() const;

 private:
  ExportTable exports_;
  std::vector<std::unique_ptr<TransportBackend>> backends_;
};

}  // namespace mscclpp::detail
