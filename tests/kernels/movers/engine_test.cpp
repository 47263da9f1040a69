// The barriers between the copies of a call, and what is caught if one is left out. The copies are not performed: what
// is checked is their order.
#include "kernels/movers/engine.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::kernels;
using namespace mscclpp::test;

namespace {

constexpr int noBarrier = -1;

/// One rank is slow in a phase, which is what lies between two barriers: in phase 0 it has not entered the call, later
/// its copies take long. No rank may be in a later phase meanwhile.
class SlowPhase {
 public:
  SlowPhase(int rank, int phase, std::chrono::milliseconds limit) : rank_(rank), phase_(phase), limit_(limit) {}

  void enter(int rank, int phase) {
    if (phase > phase_ && !isOver_) isOvertaken_ = true;
    if (rank != rank_ || phase != phase_ || isOver_) return;
    const auto deadline = std::chrono::steady_clock::now() + limit_;
    while (!isOvertaken_ && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    isOver_ = true;
  }
  bool isOvertaken() const { return isOvertaken_; }

 private:
  int rank_;
  int phase_;
  std::chrono::milliseconds limit_;
  std::atomic<bool> isOver_ = false;
  std::atomic<bool> isOvertaken_ = false;
};

/// Real barriers but for the one that is left out, and no copies.
class OrderedEngine final : public Engine {
 public:
  OrderedEngine(std::unique_ptr<Engine> engine, int rank, int omittedBarrier, SlowPhase& slow)
      : engine_(std::move(engine)), rank_(rank), omittedBarrier_(omittedBarrier), slow_(slow) {}
  void use(CUstream_st* stream) override { engine_->use(stream); }
  bool barrier() override { return phase_++ == omittedBarrier_ || engine_->barrier(); }
  void copy(std::byte*, const std::byte*, std::size_t) override { slow_.enter(rank_, phase_); }
  void copyLocal(std::byte*, const std::byte*, std::size_t) override {}
  void joinLocal() override {}
  int phase() const { return phase_; }

 private:
  std::unique_ptr<Engine> engine_;
  int rank_;
  int omittedBarrier_;
  SlowPhase& slow_;
  int phase_ = 0;
};

int phasesOf(const CopySchedule& schedule) {
  return 1 + (schedule.hasBarriersBetweenSteps() ? static_cast<int>(schedule.steps()) : 1);
}

/// A rank that copies in a phase.
int copyingRank(const CopySchedule& schedule, int phase) {
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    if (phase == 0 || schedule.transfer(rank, static_cast<std::size_t>(phase) - 1).bytes > 0) return rank;
  }
  FAIL("nobody copies");
  return -1;
}

/// Whether a rank goes on while another is slow in a phase.
bool overtakes(const CopySchedule& schedule, int slowPhase, int omittedBarrier) {
  using namespace std::chrono_literals;
  // Nothing can be overtaken where the barriers are complete, however long it takes.
  SlowPhase slow(copyingRank(schedule, slowPhase), slowPhase, omittedBarrier == noBarrier ? 30ms : 20s);
  std::array<std::byte, 4096> nowhere{};
  runAsThreads(schedule.ranks, [&](std::shared_ptr<Bootstrap> bootstrap) {
    Communicator communicator(bootstrap);
    const int rank = bootstrap->getRank();
    const SymmetricMemory memory(communicator, MoverBarrier::windowBytes(schedule.ranks), DeviceType::CPU);
    const MoverBarrier::Args barrier{Team<>(rank, schedule.ranks), memory.window(), BoundedWait(nullptr, 0)};
    OrderedEngine engine(makeCpuEngine(barrier), rank, omittedBarrier, slow);
    Window<> outputs{};
    for (int r = 0; r < schedule.ranks; ++r) outputs.base[r] = nowhere.data();
    slow.enter(rank, 0);
    perform(schedule, rank, nowhere.data(), outputs, engine);
    CHECK(engine.phase() == phasesOf(schedule));
    slow.enter(rank, engine.phase());  // the call has returned
    bootstrap->barrier();
  });
  return slow.isOvertaken();
}

const std::vector<CopySchedule> schedules{
    {CollectiveType::AllGather, 2, 0, 8, 0}, {CollectiveType::AllGather, 3, 0, 8, 4},
    {CollectiveType::AllToAll, 4, 0, 8, 0},  {CollectiveType::Broadcast, 2, 1, 8, 4},
    {CollectiveType::Broadcast, 4, 1, 8, 4}, {CollectiveType::Gather, 3, 1, 8, 0},
    {CollectiveType::Scatter, 3, 2, 8, 0},
};

}  // namespace

TEST_CASE("mover barriers: no rank is overtaken") {
  for (const CopySchedule& schedule : schedules) {
    for (int phase = 0; phase < phasesOf(schedule); ++phase) {
      INFO(nameOf(schedule.collective) << ", " << schedule.ranks << " ranks, phase " << phase);
      CHECK_FALSE(overtakes(schedule, phase, noBarrier));
    }
  }
}

TEST_CASE("mover barriers, mutants: without the opening, the closing or one between steps a rank is overtaken") {
  for (const CopySchedule& schedule : schedules) {
    for (int phase = 0; phase < phasesOf(schedule); ++phase) {
      INFO(nameOf(schedule.collective) << ", " << schedule.ranks << " ranks, without barrier " << phase);
      CHECK(overtakes(schedule, phase, phase));
    }
  }
}

TEST_CASE("mover barriers: after a failed one this rank does not arrive any more") {
  std::array<std::vector<std::uint64_t>, 2> memory;
  Window<> window{};
  for (int rank = 0; rank < 2; ++rank) {
    memory[static_cast<std::size_t>(rank)].resize(MoverBarrier::windowBytes(2) / sizeof(std::uint64_t));
    window.base[rank] = reinterpret_cast<std::byte*>(memory[static_cast<std::size_t>(rank)].data());
  }
  WaitControl control{};
  const BoundedWait wait(&control, 2'000'000);
  const auto arrive = [&](int rank) { return MoverBarrier::run(cpu::SerialGrid(), {Team<>(rank, 2), window, wait}); };
  CHECK_FALSE(arrive(0));
  CHECK(control.record.operation == WaitOperation::TeamBarrier);
  CHECK(control.record.peer == 1);
  const std::uint64_t seenByPeer = memory[1][0];
  CHECK(seenByPeer == 1);
  CHECK_FALSE(arrive(0));
  CHECK(memory[1][0] == seenByPeer);
  // The peer is let into the call that has failed, and not out of it.
  CHECK(arrive(1));
  CHECK_FALSE(arrive(1));
  CHECK_FALSE(arrive(0));
}
