// The backend for CPU ranks.
#include <sched.h>

#include <cstring>
#include <new>

#include "backend.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"

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

/// Pins the rank to a core: the scheduler may otherwise keep two ranks on one core for a while, though another is idle.
void pinToCore(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  ::sched_setaffinity(0, sizeof(set), &set);  // may fail: the measurement is then noisier
}

class CpuBackend : public Backend {
 public:
  CpuBackend(std::size_t cores, bool pinned) : cores_(cores), pinned_(pinned) {}

  std::shared_ptr<void> allocateShareable(std::size_t bytes) override {
    const auto buffer = std::make_shared<HostBuffer>(bytes);
    return {buffer, buffer->data()};
  }
  std::shared_ptr<void> allocate(std::size_t bytes) override {
    constexpr std::align_val_t alignment{4096};
    return {::operator new(bytes + 1, alignment),
            [](void* memory) { ::operator delete (memory, std::align_val_t{4096}); }};
  }
  void upload(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void fill(void* to, int byte, std::size_t bytes) override { std::memset(to, byte, bytes); }
  void runOnce(const Call& call) override { call(nullptr); }

  std::unique_ptr<TimedCall> prepare(const Call& call, const TimingOptions& timing, const Call& before) override {
    return kernels::cpuTimedCall(call, timing, before);
  }
  std::unique_ptr<TimedCall> prepareSeparate(const Call&, const Call&, const TimingOptions&) override {
    throw Error("calls are timed separately on GPUs only", ErrorCode::InvalidUsage);
  }

  std::string deviceName() const override { return {}; }
  std::string description() const override {
    return std::to_string(cores_) + " CPU cores" + (pinned_ ? ", each rank pinned to one" : "");
  }

 private:
  std::size_t cores_;
  bool pinned_;
};

}  // namespace

std::unique_ptr<Backend> makeCpuBackend(int localRank, int ranks) {
  const std::vector<int> cores = allowedCores();
  const bool pinned = ranks <= static_cast<int>(cores.size());
  if (pinned) pinToCore(cores[static_cast<std::size_t>(localRank)]);
  return std::make_unique<CpuBackend>(cores.size(), pinned);
}

}  // namespace mscclpp::perf
