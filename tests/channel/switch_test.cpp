// channel/switch.hpp on CPU ranks: reduce, broadcast and reduceInto by index, and barriers by number.
#include "mscclpp/channel/switch.hpp"

#include <doctest/doctest.h>

#include <atomic>

#include "backend/data.hpp"
#include "backend/multicast.hpp"

namespace mscclpp::test {
namespace {

/// The channel of each rank: its buffer, and after it the counters and generations of all barriers.
class Channels {
 public:
  Channels(EmulatedBackend<2>& backend, int ranks, std::size_t bytes)
      : ranks_(ranks),
        bytes_(bytes),
        control_(backend.control()),
        memory_(backend.allocate(ranks, bytes + 2 * words, 0)),
        multicast_(memory_.window(), ranks) {}

  SwitchChannelHandle of(int rank) {
    const auto window = memory_.window();
    return {window.at(rank),
            multicast_.address(),
            bytes_,
            {multicast_.address(bytes_), reinterpret_cast<std::uint64_t*>(window.at(rank, bytes_)),
             reinterpret_cast<std::uint64_t*>(window.at(rank, bytes_ + words)), control_, waitTimeout, ranks_, rank},
            nullptr};
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

TEST_CASE("switch_channel: two-shot all-reduce in place, each block with a barrier of its own, call after call") {
  constexpr int ranks = 4, blocks = 3, calls = 5;
  constexpr std::size_t vectors = 60;  // a block takes every third, a rank a fourth of those
  using V = Vector<bf16, 8>;
  EmulatedBackend<2> backend;
  Channels channels(backend, ranks, vectors * sizeof(V));
  std::vector<int> wrong(ranks);
  backend.launch({ranks, blocks, 1}, [&](int rank, const auto& grid) {
    const auto channel = channels.of(rank);
    const auto block = grid.block();
    auto barrier = channel.semaphore(grid.blockIndex());
    const auto meet = [&] {
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
      meet();
      for (std::size_t v = grid.blockIndex() + 3u * block.rank(); v < vectors; v += 3u * block.size()) {
        if (v / 3 % ranks == static_cast<std::size_t>(rank)) channel.broadcast(v, channel.template reduce<V>(v));
      }
      meet();
      for (std::size_t v = grid.blockIndex() + 3u * block.rank(); v < vectors; v += 3u * block.size()) {
        for (int i = 0; i < V::size; ++i) {
          const float expected = static_cast<float>((v + i + call) % 16 * ranks + 6);
          if (widen<bf16>(local[v][i]) != expected) std::atomic_ref(wrong[static_cast<std::size_t>(rank)]) += 1;
        }
      }
      meet();
    }
  });
  CHECK(wrong == std::vector<int>(ranks));
}

TEST_CASE("switch_channel: reductions into everyone, and the first barrier by the channel's own verbs") {
  constexpr int ranks = 3;
  using V = Vector<std::int32_t, 1>;
  EmulatedBackend<2> backend;
  Channels channels(backend, ranks, 64);
  std::vector<int> wrong(ranks);
  backend.launch({ranks, 1, 1}, [&](int rank, const auto& grid) {
    if (grid.block().rank() != 0) return;
    auto channel = channels.of(rank);
    int errors = 0;
    channel.reduceInto(0, V{{rank + 1}});
    channel.template reduceInto<Arithmetic::Max>(1, V{{10 * rank}});
    channel.template reduceInto<Arithmetic::Min>(2, V{{-10 * rank}});
    channel.signal();
    errors += !channel.wait();
    const auto* local = channel.template local<std::int32_t>();
    errors += local[0] != 6 || local[1] != 20 || local[2] != -20 || local[3] != 0;
    channel.relaxedSignal();
    errors += !channel.relaxedWait();
    errors += (channel.template reduce<V, Arithmetic::Max>(1)[0] != 20);
    wrong[static_cast<std::size_t>(rank)] = errors;
  });
  CHECK(wrong == std::vector<int>(ranks));
}

}  // namespace mscclpp::test
