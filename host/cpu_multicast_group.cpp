// Multicast among CPU ranks: every rank maps everyone's memory, and the "address" is the table of them.
#include <algorithm>
#include <cstdint>

#include "mscclpp/host/error.hpp"
#include "multicast_group.hpp"

namespace mscclpp::detail {

namespace {

class CpuMulticastGroup : public MulticastGroup {
 public:
  explicit CpuMulticastGroup(std::shared_ptr<Context> context) : context_(std::move(context)) {}

  std::size_t granularity() const override { return sizeof(Word16); }
  std::string place() const override { return {}; }

  std::vector<char> create(std::size_t, int members) override {
    if (members > arch::maxReplicas) {
      throw Error("at most " + std::to_string(arch::maxReplicas) + " CPU ranks can share a multicast address",
                  ErrorCode::InvalidUsage);
    }
    return {};
  }
  void import(const std::vector<char>&) override {}
  void join() override {}

  std::vector<char> offer(void* data, std::size_t bytes) override {
    own_ = context_->registerMemory(data, bytes, Transport::SharedMemory);
    return own_.serialize();
  }
  std::shared_ptr<const void> attach(std::size_t, void*, std::size_t) override {
    return std::make_shared<RegisteredMemory>(std::move(own_));
  }
  MulticastMapping map(std::size_t, std::size_t bytes, const std::vector<std::vector<char>>& offers) override {
    auto table = std::make_shared<Table>();
    table->replicas.count = static_cast<std::int32_t>(offers.size());
    for (std::size_t i = 0; i < offers.size(); ++i) {
      table->memories.push_back(RegisteredMemory::deserialize(offers[i]));
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
