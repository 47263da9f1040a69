// channel/switch.hpp on CPU ranks: reduce, broadcast, reduceInto, and several barriers.
#include "mscclpp/channel/switch.hpp"

#include <doctest/doctest.h>

#include <atomic>

#include "tests/backend/multicast.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {
namespace {

/// The channels of all ranks: for each, its buffer and the counters and generations of all barriers.
class TestChannels {
 public:
  TestChannels(EmulatedBackend<2>& backend, int ranks, std::size_t bytes)
      : ranks_(ranks),
        bytes_(bytes),
        control_(backend.control()),
        memory_(backend.allocate(ranks, bytes + 2 * words, 0)),
        multicast_(memory_.window(), ranks) {}

  SwitchChannelHandle handle(int rank) {
    const auto window = memory_.window();
    SwitchSemaphoreHandle semaphore;
    semaphore.mcBarrierFlag = multicast_.address(bytes_);
    semaphore.localBarrierFlag = reinterpret_cast<std::uint64_t*>(window.at(rank, bytes_));
    semaphore.barrierGen = reinterpret_cast<std::uint64_t*>(window.at(rank, bytes_ + words));
    semaphore.waitControl = control_;
    semaphore.waitTimeout = waitTimeout;
    semaphore.nRanks = ranks_;
    semaphore.rank = rank;
    semaphore.jobRanks = nullptr;
    return {window.at(rank), multicast_.address(), bytes_, semaphore, nullptr};
  }

 private:
  static constexpr std::size_t words = switchChannelSemaphores * SwitchChannelHandle::semaphoreStride;
  int ranks_;
  std::size_t bytes_;
  WaitControl* control_;
  EmulatedBuffers memory_;
  EmulatedMulticast multicast_;
};

}  // namespace

TEST_CASE("switch_channel: two-shot all-reduce in place, with a barrier per block, in consecutive calls") {
  constexpr int ranks = 4, blocks = 3, calls = 5;
  constexpr std::size_t vectors = 60;  // a block reduces every third, a rank a quarter of those
  using V = Vector<bf16, 8>;
  EmulatedBackend<2> backend;
  TestChannels channels(backend, ranks, vectors * sizeof(V));
  std::vector<int> wrong(ranks);
  backend.launch({ranks, blocks, 1}, [&](int rank, const auto& grid) {
    const auto channel = channels.handle(rank);
    const auto block = grid.block();
    auto barrier = channel.semaphore(grid.blockIndex());
    const auto syncRanks = [&] {
      block.sync();
      if (block.rank() == 0) {
        barrier.signal();
        if (!barrier.wait()) std::atomic_ref(wrong[static_cast<std::size_t>(rank)]) += 1;
      }
      block.sync();
    };
    auto* local = channel.template local<V>();
    for (int call = 0; call < calls; ++call) {
      for (std::size_t v = grid.blockIndex() + 3u * block.rank(); v < vectors; v += 3u * block.size()) {
        for (int i = 0; i < V::size; ++i) local[v][i] = narrow<bf16>(static_cast<float>((v + i + call) % 16 + rank));
      }
      syncRanks();
      for (std::size_t v = grid.blockIndex() + 3u * block.rank(); v < vectors; v += 3u * block.size()) {
        if (v / 3 % ranks == static_cast<std::size_t>(rank)) channel.broadcast(v, channel.template reduce<V>(v));
      }
      syncRanks();
      for (std::size_t v = grid.blockIndex() + 3u * block.rank(); v < vectors; v += 3u * block.size()) {
        for (int i = 0; i < V::size; ++i) {
          const float expected = static_cast<float>((v + i + call) % 16 * ranks + 6);
          if (widen<bf16>(local[v][i]) != expected) std::atomic_ref(wrong[static_cast<std::size_t>(rank)]) += 1;
        }
      }
      syncRanks();
    }
  });
  CHECK(wrong == std::vector<int>(ranks));
}

TEST_CASE("switch_channel: reductions into all ranks, and barrier 0 by the channel's own functions") {
  constexpr int ranks = 3;
  using V = Vector<std::int32_t, 1>;
  EmulatedBackend<2> backend;
  TestChannels channels(backend, ranks, 64);
  std::vector<int> wrong(ranks);
  backend.launch({ranks, 1, 1}, [&](int rank, const auto& grid) {
    if (grid.block().rank() != 0) return;
    auto channel = channels.handle(rank);
    int errors = 0;
    channel.reduceInto(0, V{{rank + 1}});
    channel.template reduceInto<HardwareReduceOp::Max>(1, V{{10 * rank}});
    channel.template reduceInto<HardwareReduceOp::Min>(2, V{{-10 * rank}});
    channel.signal();
    errors += !channel.wait();
    const auto* local = channel.template local<std::int32_t>();
    errors += local[0] != 6 || local[1] != 20 || local[2] != -20 || local[3] != 0;
    channel.relaxedSignal();
    errors += !channel.relaxedWait();
    errors += (channel.template reduce<V, HardwareReduceOp::Max>(1)[0] != 20);
    wrong[static_cast<std::size_t>(rank)] = errors;
  });
  CHECK(wrong == std::vector<int>(ranks));
}

}  // namespace mscclpp::test
