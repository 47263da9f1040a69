// A rank that is one CPU thread, over shared memory.
#include <cstring>

#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/host/host_buffer.hpp"
#include "place.hpp"

namespace mscclpp::bench {

namespace {

class CpuPlace : public Place {
 public:
  Device device() const override { return DeviceType::CPU; }
  Transport transport() const override { return Transport::SharedMemory; }
  std::string description() const override { return "CPU threads over shared memory"; }
  std::shared_ptr<void> allocate(std::size_t bytes) override { return HostBuffer(bytes).memory(); }
  void upload(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  std::shared_ptr<std::uint64_t> allocateHostWord() override { return std::make_shared<std::uint64_t>(0); }
  double run(const PortChannelHandle& channel, const Order& order) override { return runAny(channel, order); }
  double run(const WidePortChannelHandle& channel, const Order& order) override { return runAny(channel, order); }

 private:
  template <class Channel>
  double runAny(const Channel& channel, const Order& order) {
    std::uint64_t elapsed = 0;
    withWork(channel, order, &elapsed, [](const auto& work) { work(0, cpu::SerialGrid()); });
    return static_cast<double>(elapsed);
  }
};

}  // namespace

std::unique_ptr<Place> cpuPlace() {
  return std::make_unique<CpuPlace>();
}

}  // namespace mscclpp::bench
