#include "device.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"

namespace mscclpp::bench {

namespace {

class Cpu final : public RankDevice {
 public:
  DeviceType type() const override { return DeviceType::CPU; }
  std::shared_ptr<void> allocate(std::size_t bytes) override { return HostBuffer(bytes).memory(); }
  CUstream_st* stream() override { return nullptr; }
  void synchronize() override {}
  std::size_t usedBytes() override { return 0; }
};

}  // namespace

std::unique_ptr<RankDevice> makeCpu() {
  return std::make_unique<Cpu>();
}

}  // namespace mscclpp::bench
