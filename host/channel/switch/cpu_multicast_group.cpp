// Multicast among CPU ranks: every rank maps the memory of all ranks, and the "address" is the table of the mappings.
#include <algorithm>
#include <cstdint>

#include "host/channel/switch/multicast_group.hpp"
#include "host/transport/memory_registration.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

namespace {

class CpuMulticastGroup : public MulticastGroup {
 public:
  explicit CpuMulticastGroup(std::shared_ptr<Context> context) : context_(std::move(context)) {}

  std::size_t granularity() const override { return sizeof(Word128); }
  std::string deviceKey() const override { return {}; }

  std::vector<char> create(std::size_t, int members) override {
    if (members > arch::maxReplicas) {
      throw Error("at most " + std::to_string(arch::maxReplicas) + " CPU ranks can share a multicast address",
                  ErrorCode::InvalidUsage);
    }
    return {};
  }
  void import(const std::vector<char>&, const Deadline&) override {}
  void addDevice() override {}

  std::vector<char> exportMemory(void* data, std::size_t bytes) override {
    own_ = context_->registerMemory(data, bytes, Transport::SharedMemory);
    return own_.serialize();
  }
  std::shared_ptr<const void> bind(std::size_t, void*, std::size_t) override {
    return std::make_shared<RegisteredMemory>(std::move(own_));
  }
  MulticastMapping map(std::size_t, std::size_t bytes, const std::vector<std::vector<char>>& exports,
                       const Deadline& deadline) override {
    auto table = std::make_shared<Table>();
    table->replicas.count = static_cast<std::int32_t>(exports.size());
    for (std::size_t i = 0; i < exports.size(); ++i) {
      table->memories.push_back(deserializeMemory(exports[i], deadline));
      if (table->memories.back().size() != bytes)
        throw Error("a peer offered memory of another size", ErrorCode::RemoteError);
      table->replicas.base[i] = static_cast<std::byte*>(table->memories.back().data());
    }
    return {{reinterpret_cast<std::byte*>(&table->replicas), 0}, table};
  }

 private:
  struct Table {
    arch::Replicas replicas{};
    std::vector<RegisteredMemory> memories;
  };
  std::shared_ptr<Context> context_;
  RegisteredMemory own_;
};

}  // namespace

std::unique_ptr<MulticastGroup> makeCpuMulticastGroup(std::shared_ptr<Context> context) {
  return std::make_unique<CpuMulticastGroup>(std::move(context));
}

}  // namespace mscclpp::detail
