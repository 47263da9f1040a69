// Runs the pushers on CPU threads.
#include <memory>

#include "mscclpp/emulation/launch.hpp"
#include "run.hpp"

namespace mscclpp::bench {

namespace {

struct CpuThreads {
  static constexpr int warpWidth = 1;
  Device type = DeviceType::CPU;

  std::shared_ptr<void> allocate(std::size_t bytes) const {
    return {new char[bytes](), [](void* memory) { delete[] static_cast<char*>(memory); }};
  }
  template <class Body>
  void launch(int blocks, int threads, const Body& body) const {
    emulation::launch<warpWidth>({1, blocks, threads}, body);
  }
  std::uint64_t load(const std::uint64_t* word) const { return *word; }
};

}  // namespace

Result runOnCpu(const BenchmarkCase& benchmarkCase) {
  CpuThreads threads;
  return runCase(threads, benchmarkCase);
}

}  // namespace mscclpp::bench
