// Emulated launches: the threads that run, and errors.
#include "mscclpp/emulation/launch.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>

#include "mscclpp/emulation/symmetric_buffers.hpp"
#include "tests/backend/sanitizer.hpp"

using namespace mscclpp;

namespace {

// Threads of a launch start one after the other, on a busy machine much later. Where a test lets a sync() time out, all
// threads call meet() first, so that the time counts from when they all run.
class Meeting {
 public:
  explicit Meeting(int threads) : absent_(threads) {}
  void meet() {
    --absent_;
    while (absent_ > 0) std::this_thread::yield();
  }

 private:
  std::atomic<int> absent_;
};

}  // namespace

TEST_CASE("launch: every thread of every block of every rank runs once") {
  std::mutex mutex;
  std::multiset<std::tuple<int, int, int>> ran;
  emulation::launch<2>({3, 2, 4}, [&](int rank, const auto& grid) {
    const std::lock_guard lock(mutex);
    ran.emplace(rank, grid.blockIndex(), grid.block().rank());
  });
  CHECK(ran.size() == 3 * 2 * 4);
  CHECK(std::set(ran.begin(), ran.end()).size() == ran.size());
}

TEST_CASE("launch: all threads run concurrently") {
  std::atomic<int> present = 0;
  emulation::launch<1>({2, 3, 2}, [&](int, const auto&) {
    ++present;
    while (present < 12) std::this_thread::yield();
  });
  CHECK(present == 12);
}

TEST_CASE("launch: the threads of one launch serve the next") {
  const auto threads = [](int count) {
    std::mutex mutex;
    std::set<std::thread::id> ids;
    emulation::launch<1>({.threads = count}, [&](int, const auto&) {
      const std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
    });
    return ids;
  };
  const auto first = threads(3);
  CHECK(first.size() == 3);
  CHECK(threads(3) == first);
  const auto more = threads(5);
  CHECK(more.size() == 5);
  CHECK(std::includes(more.begin(), more.end(), first.begin(), first.end()));
}

TEST_CASE("launch: from threads of a launch, and from several threads at once") {
  std::atomic<int> ran = 0;
  emulation::launch<1>({.ranks = 2, .threads = 2}, [&](int, const auto& grid) {
    emulation::launch<1>({.threads = 3}, [&](int, const auto& inner) {
      inner.block().sync();
      ++ran;
    });
    grid.block().sync();
  });
  CHECK(ran == 12);
}

// ThreadSanitizer does not know the parent's threads in a forked child.
TEST_CASE("launch: a forked child starts threads of its own" * doctest::skip(test::detectsRaces)) {
  std::atomic<int> ran = 0;
  const auto launch = [&] { emulation::launch<1>({.threads = 2}, [&](int, const auto&) { ++ran; }); };
  launch();
  const pid_t child = ::fork();
  if (child == 0) {
    launch();
    std::quick_exit(ran == 4 ? 0 : 1);
  }
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("launch: a vote is that of its own sync, even if others have used the barrier since") {
  std::atomic<int> wrong = 0;
  emulation::launch<1>({.threads = 4}, [&](int, const auto& grid) {
    for (int round = 0; round < 200; ++round) {
      const bool own = round % 3 == 0;
      if (grid.block().syncAny(own && grid.block().rank() == round % 4) != own) ++wrong;
    }
  });
  CHECK(wrong == 0);
  // Two spans, one after the other: the first two threads may look at the barrier only when the others are through it.
  emulation::Barrier barrier(std::chrono::seconds(20));
  std::atomic<int> done = 0;
  for (int round = 0; round < 50; ++round) {
    emulation::launch<1>({.threads = 4}, [&](int, const auto& grid) {
      const int rank = grid.block().rank();
      if (rank >= 2) {
        while (done < 1) std::this_thread::yield();
      }
      const bool first = rank < 2;
      if (barrier.wait(first ? emulation::ThreadSpan{0, 2} : emulation::ThreadSpan{2, 2}, first) != first) ++wrong;
      done = 1;
    });
    done = 0;
  }
  CHECK(wrong == 0);
}

TEST_CASE("launch: a thread that skips a sync is a deadlock, which is reported") {
  Meeting meeting(4);
  std::string message;
  try {
    emulation::launch<2>({1, 1, 4, std::chrono::seconds(2)}, [&](int, const auto& grid) {
      meeting.meet();
      if (grid.block().rank() != 3) grid.block().sync();
    });
  } catch (const emulation::Deadlock& deadlock) {
    message = deadlock.what();
  }
  CHECK(message.find("3 of 4") != std::string::npos);
}

TEST_CASE("launch: a lane that skips a vote is a deadlock") {
  CHECK_THROWS_AS(emulation::launch<2>({1, 1, 2, std::chrono::seconds(1)},
                                       [](int, const auto& grid) {
                                         if (grid.warp().rank() == 0) grid.warp().all(true);
                                       }),
                  emulation::Deadlock);
}

TEST_CASE("launch: the first exception of a thread is rethrown after all have ended") {
  std::atomic<int> ended = 0;
  CHECK_THROWS_WITH(emulation::launch<1>({2, 1, 2},
                                         [&](int rank, const auto& grid) {
                                           if (rank == 1 && grid.block().rank() == 1) throw std::runtime_error("mine");
                                           std::this_thread::sleep_for(std::chrono::milliseconds(20));
                                           ++ended;
                                         }),
                    "mine");
  CHECK(ended == 3);
}

TEST_CASE("launch: an exception takes precedence over the deadlock that it causes") {
  Meeting meeting(2);
  CHECK_THROWS_WITH(emulation::launch<1>({1, 1, 2, std::chrono::seconds(2)},
                                         [&](int, const auto& grid) {
                                           meeting.meet();
                                           if (grid.block().rank() == 0) throw std::runtime_error("cause");
                                           grid.block().sync();
                                         }),
                    "cause");
}

TEST_CASE("launch: groups that sync through the same barrier are an error") {
  Meeting meeting(4);
  std::string message;
  try {
    emulation::launch<1>({.threads = 4, .timeout = std::chrono::seconds(2)}, [&](int, const auto& grid) {
      const auto first = grid.warps(0, 2);
      const auto second = grid.warps(2, 2);  // the same BarrierIds
      meeting.meet();
      // One thread of each span: whichever comes first stays in the barrier, so the other finds it there.
      if (grid.block().rank() == 0) first.block().sync();
      if (grid.block().rank() == 2) second.block().sync();
    });
  } catch (const std::logic_error& error) {
    message = error.what();
  }
  INFO(message);
  CHECK(message.find("threads 0 to 1") != std::string::npos);
  CHECK(message.find("threads 2 to 3") != std::string::npos);
}

TEST_CASE("launch: spans of warps and barriers that a block does not have are errors") {
  const auto span = [](int first, int count, BarrierIds barriers = {}) {
    emulation::launch<1>({.threads = 3}, [&](int, const auto& grid) {
      const auto warps = grid.warps(first, count, barriers);
      if (warps.isMember()) warps.block().sync();
    });
  };
  span(0, 3);
  span(1, 2, {10});
  CHECK_THROWS_AS(span(1, 3), std::out_of_range);
  CHECK_THROWS_AS(span(-1, 2), std::out_of_range);
  CHECK_THROWS_AS(span(0, 0), std::out_of_range);
  CHECK_THROWS_AS(span(0, 3, {11}), std::out_of_range);
}

TEST_CASE("launch: invalid shapes are rejected") {
  const auto nothing = [](int, const auto&) {};
  CHECK_THROWS_AS(emulation::launch<1>({0, 1, 1}, nothing), std::invalid_argument);
  CHECK_THROWS_AS(emulation::launch<1>({1, 0, 1}, nothing), std::invalid_argument);
  CHECK_THROWS_AS(emulation::launch<1>({1, 1, 0}, nothing), std::invalid_argument);
  CHECK_THROWS_AS(emulation::launch<1>({1, 1, -4}, nothing), std::invalid_argument);
  CHECK_THROWS_AS(emulation::launch<4>({1, 1, 6}, nothing), std::invalid_argument);
}

TEST_CASE("launch: any warp width that divides the block") {
  std::atomic<int> sum = 0;
  emulation::launch<3>({1, 1, 6}, [&](int, const auto& grid) {
    const auto warp = grid.warp();
    if (warp.all(grid.warpCount() == 2) && warp.shuffle(static_cast<std::uint32_t>(warp.rank()), 2) == 2) ++sum;
  });
  CHECK(sum == 6);
}

TEST_CASE("launch: shared memory is per block, aligned, and zero-initialised") {
  std::mutex mutex;
  std::set<std::byte*> places;
  std::atomic<int> wrong = 0;
  emulation::launch<2>({.ranks = 2, .blocks = 3, .threads = 4, .sharedBytes = 200}, [&](int rank, const auto& grid) {
    const auto block = grid.block();
    std::byte* shared = grid.sharedMemory();
    wrong += reinterpret_cast<std::uintptr_t>(shared) % 128 != 0;
    for (int i = 0; i < 200; ++i) wrong += shared[i] != std::byte{0};
    block.sync();
    shared[196 + block.rank()] = static_cast<std::byte>(10 * rank + grid.blockIndex());
    block.sync();
    for (int i = 196; i < 200; ++i) wrong += shared[i] != static_cast<std::byte>(10 * rank + grid.blockIndex());
    const std::lock_guard lock(mutex);
    places.insert(shared);
  });
  CHECK(places.size() == 6);
  CHECK(wrong == 0);
}

TEST_CASE("symmetric_buffers: filled, aligned, distinct, and in one window") {
  const emulation::SymmetricBuffers buffers(3, 1000, 0x7f);
  const auto window = buffers.window<3>();
  std::set<std::byte*> bases;
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(reinterpret_cast<std::uintptr_t>(buffers.at(rank)) % 128 == 0);
    CHECK(window.at(rank) == buffers.at(rank));
    CHECK(window.subWindow(16).at(rank, 4) == buffers.at(rank) + 20);
    bases.insert(window.at(rank));
    int other = 0;
    for (int i = 0; i < 1000; ++i) other += *window.at(rank, static_cast<std::size_t>(i)) != std::byte{0x7f};
    CHECK(other == 0);
  }
  CHECK(bases.size() == 3);
  CHECK(emulation::SymmetricBuffers(1, 0).at(0) != nullptr);
}
