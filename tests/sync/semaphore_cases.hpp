// Cases of sync/semaphore.hpp: signals are counted, and order the writes before them.
#pragma once

#include <doctest/doctest.h>

#include "mscclpp/sync/semaphore.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

/// The memory of a rank in these tests.
struct SemaphoreMemory {
  std::uint64_t inbound;
  std::uint64_t expected;
  std::uint64_t payload[32];
  std::uint64_t result[32];
};

/// The semaphore of `rank` with the other of two ranks.
inline MSCCLPP_HOST_DEVICE SemaphoreHandle semaphoreOf(const Window<>& memory, int rank, WaitControl* control,
                                                       std::uint64_t timeout) {
  auto* own = reinterpret_cast<SemaphoreMemory*>(memory.at(rank));
  auto* other = reinterpret_cast<SemaphoreMemory*>(memory.at(1 - rank));
  return {{}, &own->inbound, &other->inbound, &own->expected, control, timeout, rank, 1 - rank};
}

/// Alternating message passing: plain stores to the peer, a signal, and the peer's reply.
struct PingPongBody {
  Window<> memory;
  WaitControl* control;
  int rounds;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    auto semaphore = semaphoreOf(memory, rank, control, waitTimeout);
    const auto warp = grid.warp();
    const int lane = warp.rank();
    auto* own = reinterpret_cast<SemaphoreMemory*>(memory.at(rank));
    auto* other = reinterpret_cast<SemaphoreMemory*>(memory.at(1 - rank));
    std::uint64_t wrong = 0;
    for (int round = 0; round < rounds; ++round) {
      if (round % 2 == rank) {
        other->payload[lane] = static_cast<std::uint64_t>(round) * 100 + lane;
        warp.sync();
        if (lane == 0) semaphore.signal();
      } else {
        if (lane == 0) semaphore.wait();
        warp.sync();
        if (own->payload[lane] != static_cast<std::uint64_t>(round) * 100 + lane) ++wrong;
        warp.sync();
      }
    }
    own->result[lane] = wrong;
  }
};

TEST_CASE("semaphore: writes before a signal are visible after the wait") {
  Backend<> backend;
  auto memory = backend.allocate(2, sizeof(SemaphoreMemory), 0);
  const int rounds = 1000;
  backend.launch({2, 1, 1}, PingPongBody{memory.window(), backend.control(), rounds});
  for (int rank = 0; rank < 2; ++rank) {
    const auto after = memory.read<SemaphoreMemory>(rank)[0];
    CHECK(after.inbound == rounds / 2);
    CHECK(after.expected == rounds / 2);
    for (const auto wrong : after.result) CHECK(wrong == 0);
  }
}

/// Rank 0 signals `signals` times and then relaxed as often; rank 1 consumes them by wait, relaxedWait and poll, and
/// finds no more.
struct AccumulationBody {
  Window<> memory;
  WaitControl* control;
  int signals;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    if (grid.block().rank() != 0) return;
    auto semaphore = semaphoreOf(memory, rank, control, waitTimeout);
    if (rank == 0) {
      for (int i = 0; i < signals; ++i) semaphore.signal();
      for (int i = 0; i < signals; ++i) semaphore.relaxedSignal();
      semaphore.wait();  // until rank 1 has counted
      semaphore.signal();
      return;
    }
    std::uint64_t consumed = 0;
    for (int i = 0; i < signals; ++i) consumed += i % 2 == 0 ? semaphore.wait() : semaphore.relaxedWait();
    const auto start = arch::nanoseconds();
    while (consumed < 2u * signals && arch::nanoseconds() - start < waitTimeout) consumed += semaphore.poll();
    auto* own = reinterpret_cast<SemaphoreMemory*>(memory.at(1));
    own->result[0] = consumed;
    own->result[1] = semaphore.poll();
    TryOnce once;
    own->result[2] = semaphore.wait(once);  // fails, and does not consume the next signal
    semaphore.signal();
    own->result[3] = semaphore.wait();
  }
};

TEST_CASE("semaphore: signals accumulate, and each satisfies one wait or poll") {
  Backend<> backend;
  auto memory = backend.allocate(2, sizeof(SemaphoreMemory), 0);
  backend.launch({2, 1, 1}, AccumulationBody{memory.window(), backend.control(), 50});
  const auto after = memory.read<SemaphoreMemory>(1)[0];
  CHECK(after.result[0] == 100);
  CHECK(after.result[1] == 0);
  CHECK(after.result[2] == 0);
  CHECK(after.result[3] == 1);
  CHECK(after.inbound == 101);
  CHECK(after.expected == 101);
}

/// Rank 0 stores `steps` values, two for each signal by 2. The lanes of rank 1 follow without consuming signals, each
/// value by the count that covers it; then one lane consumes them all.
struct FollowBody {
  static constexpr int steps = 32;
  Window<> memory;
  WaitControl* control;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    const auto semaphore = semaphoreOf(memory, rank, control, waitTimeout);
    const auto warp = grid.warp();
    const int lane = warp.rank();
    auto* own = reinterpret_cast<SemaphoreMemory*>(memory.at(rank));
    if (rank == 0) {
      auto* other = reinterpret_cast<SemaphoreMemory*>(memory.at(1));
      for (int i = 0; lane == 0 && i < steps; i += 2) {
        other->payload[i] = static_cast<std::uint64_t>(i) + 100;
        other->payload[i + 1] = static_cast<std::uint64_t>(i) + 101;
        if (i % 4 == 0) {
          semaphore.signal(2);
        } else {
          semaphore.signal();
          semaphore.signal();
        }
      }
      if (lane == 0) semaphore.relaxedSignal(5);
      return;
    }
    std::uint64_t wrong = 0;
    for (int i = 0; i < steps; ++i) {
      const bool arrived = semaphore.waitAtLeast(static_cast<std::uint64_t>(i) + 1);
      if (!arrived || own->payload[i] != static_cast<std::uint64_t>(i) + 100) ++wrong;
    }
    own->result[lane] = wrong;
    warp.sync();
    if (lane != 0) return;
    for (int i = 0; i < steps + 5; ++i) own->result[0] += !semaphore.wait();
    own->result[0] += semaphore.poll();
  }
};

TEST_CASE("semaphore: several threads follow a count of signals, and wait() then consumes them") {
  Backend<> backend;
  auto memory = backend.allocate(2, sizeof(SemaphoreMemory), 0);
  backend.launch({2, 1, 1}, FollowBody{memory.window(), backend.control()});
  const auto after = memory.read<SemaphoreMemory>(1)[0];
  for (const auto wrong : after.result) CHECK(wrong == 0);
  CHECK(after.inbound == FollowBody::steps + 5);
  CHECK(after.expected == FollowBody::steps + 5);
}

/// Rank 1 waits for a count of three, but only two signals are sent.
struct MissingCountBody {
  Window<> memory;
  WaitControl* control;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    if (grid.block().rank() != 0) return;
    const auto semaphore = semaphoreOf(memory, rank, control, 30'000'000);
    if (rank == 0) return semaphore.signal(2);
    auto* own = reinterpret_cast<SemaphoreMemory*>(memory.at(1));
    own->result[0] = semaphore.waitAtLeast(2);
    own->result[1] = semaphore.waitAtLeast(3);
  }
};

TEST_CASE("semaphore: a wait for a count that is not reached leaves a record") {
  Backend<> backend;
  auto memory = backend.allocate(2, sizeof(SemaphoreMemory), 0);
  const auto record = backend.run({2, 1, 1}, MissingCountBody{memory.window(), backend.control()});
  REQUIRE(record);
  CHECK(record->operation == WaitOperation::Semaphore);
  CHECK(record->expected == 3);
  CHECK(record->seen == 2);
  const auto after = memory.read<SemaphoreMemory>(1)[0];
  CHECK(after.result[0] == 1);
  CHECK(after.result[1] == 0);
  CHECK(after.expected == 0);
}

/// Rank 1 waits for a third signal, but only two are sent.
struct MissingSignalBody {
  Window<> memory;
  WaitControl* control;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    if (grid.block().rank() != 0) return;
    auto semaphore = semaphoreOf(memory, rank, control, 30'000'000);
    for (int i = 0; i < 3; ++i) {
      if (rank == 1) {
        reinterpret_cast<SemaphoreMemory*>(memory.at(1))->result[i] = semaphore.wait();
      } else if (i < 2) {
        semaphore.signal();
      }
    }
  }
};

TEST_CASE("semaphore: a wait for a missing signal leaves a record") {
  Backend<> backend;
  auto memory = backend.allocate(2, sizeof(SemaphoreMemory), 0);
  const auto record = backend.run({2, 1, 1}, MissingSignalBody{memory.window(), backend.control()});
  REQUIRE(record);
  CHECK(record->operation == WaitOperation::Semaphore);
  CHECK(record->rank == 1);
  CHECK(record->peer == 0);
  CHECK(record->expected == 3);
  CHECK(record->seen == 2);
  const auto after = memory.read<SemaphoreMemory>(1)[0];
  CHECK((after.result[0] == 1 && after.result[1] == 1 && after.result[2] == 0));
}

}  // namespace mscclpp::test
