// A rank on a CPU thread, over shared memory.
#include <cstring>

#include "backend.hpp"
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"

namespace mscclpp::bench {

namespace {

class CpuBackend : public Backend {
 public:
  Device device() const override { return DeviceType::CPU; }
  Transport transport() const override { return Transport::SharedMemory; }
  std::string description() const override { return "CPU threads over shared memory"; }
  std::shared_ptr<void> allocate(std::size_t bytes) override { return HostBuffer(bytes).memory(); }
  void upload(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  std::shared_ptr<std::uint64_t> allocateHostWord() override { return std::make_shared<std::uint64_t>(0); }
  double run(const PortChannelHandle& channel, const Workload& workload) override { return runAny(channel, workload); }
  double run(const WidePortChannelHandle& channel, const Workload& workload) override {
    return runAny(channel, workload);
  }

 private:
  template <class Channel>
  double runAny(const Channel& channel, const Workload& workload) {
    std::uint64_t elapsed = 0;
    withKernel(channel, workload, &elapsed, [](const auto& kernel) { kernel(0, cpu::SerialGrid()); });
    return static_cast<double>(elapsed);
  }
};

}  // namespace

std::unique_ptr<Backend> makeCpuBackend() {
  return std::make_unique<CpuBackend>();
}

}  // namespace mscclpp::bench
