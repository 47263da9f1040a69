// A CPU rank as a place to measure in: calls in a loop, by the clock.
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <new>

#include "median.hpp"
#include "place.hpp"

namespace mscclpp::perf {

namespace {

class CpuPlace : public Place {
 public:
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

  std::string description() const override { return std::to_string(::sysconf(_SC_NPROCESSORS_ONLN)) + " CPU cores"; }
};

}  // namespace

std::unique_ptr<Place> cpuPlace() {
  return std::make_unique<CpuPlace>();
}

}  // namespace mscclpp::perf
