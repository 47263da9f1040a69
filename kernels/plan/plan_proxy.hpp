// The proxy of the Port channels of an executor's plans, and the memories that it reaches.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <tuple>

#include "kernels/backend.hpp"
#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/proxy/proxy_service.hpp"
#include "mscclpp/host/transport/registered_memory.hpp"
#include "mscclpp/plan/execution.hpp"

namespace mscclpp::kernels {

class PlanProxy {
 public:
  /// Starts the proxy, unless it runs.
  void start(DeviceType where);
  /// Stops the proxy and forgets all memories. No call in flight uses them.
  void reset();
  /// Null until start().
  const std::shared_ptr<WideProxyService>& service() const noexcept { return service_; }

  /// A buffer of a rank: where it begins in a memory, which is empty if the rank has none.
  struct Place {
    const RegisteredMemory& memory;
    const std::byte* begin;
  };
  using PlaceOf = std::function<Place(plan::BufferKind kind, int rank)>;
  /// ExecutionArgs::memories of buffers, in memory of the backend. After start().
  std::shared_ptr<void> makeTable(const Backend& backend, int ranks, const PlaceOf& placeOf);

 private:
  /// The proxy's id of a memory: one for each allocation, which stays mapped, so that no other gets its address.
  MemoryId idOf(int rank, const RegisteredMemory& memory);

  std::shared_ptr<WideProxyService> service_;
  std::map<std::tuple<int, void*, std::size_t>, MemoryId> ids_;  ///< by rank, address and bytes
};

}  // namespace mscclpp::kernels
