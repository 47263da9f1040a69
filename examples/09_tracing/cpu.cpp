// 09 on CPU ranks: processes, each with a grid of one thread and a proxy.
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "step.hpp"

using namespace mscclpp;

namespace {

struct Cpu {
  static constexpr DeviceType type = DeviceType::CPU;
  static constexpr Transport transport = Transport::SharedMemory;
  static constexpr int blocks = 1;
  std::function<void(ClockSync*)> launchClockSync;  // none: its clock is the host's

  template <class T>
  std::shared_ptr<T> allocate(std::size_t n) const {
    return std::static_pointer_cast<T>(HostBuffer(n * sizeof(T)).memory());
  }
  void run(const example::Step& step) const { example::runStep(cpu::SerialGrid(), step); }
  std::vector<float> read(const float* from, std::size_t n) const { return {from, from + n}; }
};

}  // namespace

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "09_tracing_cpu.json";
  return example::runOnRanks(2, argc, argv, [&](ProcessGroup& group) { example::runRank(group, Cpu{}, path); });
}
