#include "plan_proxy.hpp"

#include <cstdint>
#include <iterator>
#include <vector>

namespace mscclpp::kernels {

void PlanProxy::start(DeviceType where) {
  if (service_ != nullptr) return;
  ProxyServiceOptions options;
  if (where == DeviceType::CPU) options.thread.device = DeviceType::CPU;
  service_ = std::make_shared<WideProxyService>(options);
  service_->startProxy();
}

void PlanProxy::reset() {
  ids_.clear();
  if (service_ != nullptr) service_->stopProxy();
  service_.reset();
}

std::shared_ptr<void> PlanProxy::makeTable(const Backend& backend, int ranks, const PlaceOf& placeOf) {
  constexpr plan::BufferKind kinds[] = {plan::BufferKind::Scratch, plan::BufferKind::Input, plan::BufferKind::Output};
  std::vector<plan::PortMemory> memories(std::size(kinds) * static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    for (const plan::BufferKind kind : kinds) {
      const Place place = placeOf(kind, rank);
      if (place.memory.size() == 0) continue;
      const auto offset = place.begin - static_cast<const std::byte*>(place.memory.data());
      memories[static_cast<std::size_t>(kind) * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(rank)] = {
          static_cast<std::uint64_t>(offset), idOf(rank, place.memory)};
    }
  }
  const std::shared_ptr<void> table = backend.allocate(memories.size() * sizeof(plan::PortMemory));
  backend.upload(table.get(), memories.data(), memories.size() * sizeof(plan::PortMemory));
  return table;
}

MemoryId PlanProxy::idOf(int rank, const RegisteredMemory& memory) {
  const auto key = std::tuple(rank, memory.data(), memory.size());
  const auto known = ids_.find(key);
  if (known != ids_.end()) return known->second;
  return ids_.emplace(key, service_->addMemory(memory)).first->second;
}

}  // namespace mscclpp::kernels
