// The engine of a mover on CPU ranks: copies in the calling thread.
#include <cstring>

#include "kernels/movers/engine.hpp"
#include "mscclpp/basic/serial_group.hpp"

namespace mscclpp::kernels {

namespace {

class CpuEngine final : public Engine {
 public:
  explicit CpuEngine(const MoverBarrier::Args& barrier) : barrier_(barrier) {}
  void use(CUstream_st* /*stream*/) override {}
  bool barrier() override { return MoverBarrier::run(cpu::SerialGrid(), barrier_); }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void copyLocal(std::byte* to, const std::byte* from, std::size_t bytes) override { copy(to, from, bytes); }
  void joinLocal() override {}

 private:
  MoverBarrier::Args barrier_;
};

}  // namespace

std::unique_ptr<Engine> makeCpuEngine(const MoverBarrier::Args& barrier) {
  return std::make_unique<CpuEngine>(barrier);
}

}  // namespace mscclpp::kernels
