// A CPU rank as a place to measure in: calls in a loop, by the clock.
#include <sched.h>

#include <chrono>
#include <cstring>
#include <new>

#include "median.hpp"
#include "place.hpp"

namespace mscclpp::perf {

namespace {

std::vector<int> allowedCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

/// Two ranks that the system puts on one core take turns there for a while, though another core is free.
void bindTo(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  ::sched_setaffinity(0, sizeof(set), &set);  // where it is forbidden, the measurement is noisier
}

class CpuPlace : public Place {
 public:
  CpuPlace(std::size_t cores, bool bound) : cores_(cores), bound_(bound) {}

  std::shared_ptr<void> allocate(std::size_t bytes) override {
    constexpr std::align_val_t alignment{4096};
    return {::operator new(bytes + 1, alignment),
            [](void* memory) { ::operator delete (memory, std::align_val_t{4096}); }};
  }
  void upload(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void fill(void* to, int byte, std::size_t bytes) override { std::memset(to, byte, bytes); }
  void once(const Call& call) override { call(nullptr); }

  double time(const Call& call, const Method& method, const std::function<void()>& together) override {
    for (int i = 0; i < method.warmup; ++i) call(nullptr);
    std::vector<double> microseconds;
    for (int repeat = 0; repeat < method.repeats; ++repeat) {
      together();
      call(nullptr);  // takes up the skew that lining up leaves
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < method.calls; ++i) call(nullptr);
      const std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - start;
      microseconds.push_back(passed.count() / method.calls);
    }
    return median(microseconds);
  }

  std::string description() const override {
    return std::to_string(cores_) + " CPU cores" + (bound_ ? ", each rank bound to one" : "");
  }

 private:
  std::size_t cores_;
  bool bound_;
};

}  // namespace

std::unique_ptr<Place> cpuPlace(int localRank, int ranks) {
  const std::vector<int> cores = allowedCores();
  const bool bound = ranks <= static_cast<int>(cores.size());
  if (bound) bindTo(cores[static_cast<std::size_t>(localRank)]);
  return std::make_unique<CpuPlace>(cores.size(), bound);
}

}  // namespace mscclpp::perf
