// One-sided messages through NCCL's C API (2.29 and newer): the same cases for CPU ranks and GPUs.
#pragma once

#include <string>
#include <vector>

#include "tests/nccl/client_cases.hpp"

namespace mscclpp::test {

/// A window of this rank's memory, for a scope.
template <class Backend>
class ScopedWindow {
 public:
  ScopedWindow(ncclComm_t comm, std::size_t bytes, int flags) : comm_(comm), bytes_(bytes) {
    require(ncclMemAlloc(&memory_, bytes), "ncclMemAlloc");
    require(ncclCommWindowRegister(comm, memory_, bytes, &window_, flags), "ncclCommWindowRegister");
  }
  ~ScopedWindow() {
    CHECK(ncclCommWindowDeregister(comm_, window_) == ncclSuccess);
    CHECK(ncclMemFree(memory_) == ncclSuccess);
  }
  ScopedWindow(const ScopedWindow&) = delete;
  ScopedWindow& operator=(const ScopedWindow&) = delete;

  ncclWindow_t get() const { return window_; }
  unsigned char* data() const { return static_cast<unsigned char*>(memory_); }
  Bytes read() const { return Backend::Memory::readFrom(memory_, bytes_); }

 private:
  ncclComm_t comm_;
  std::size_t bytes_;
  void* memory_ = nullptr;
  ncclWindow_t window_ = nullptr;
};

/// Every rank puts `count` numbers into its part of the windows of all ranks, its own too, in several rounds; between
/// two rounds a rank tells the others that its part may be written again, by a signal of another index. In a group, or
/// one by one.
template <class Backend>
void checkPuts(Client<Backend>& c, std::size_t count, int flags, bool inGroups) {
  constexpr int data = 0, credit = 1;
  const std::size_t part = count * 4;
  const auto rank = static_cast<std::size_t>(c.rank), ranks = static_cast<std::size_t>(c.ranks);
  const ScopedWindow<Backend> window(c.comm, ranks * part + 8, flags);
  const auto valuesIn = [&](int round, std::size_t of) {
    return encode(ncclInt32, valuesOf(static_cast<int>(of) * 3 + round, of, count));
  };
  std::vector<ncclWaitSignalDesc_t> arrivals, credits;
  for (int peer = 0; peer < c.ranks; ++peer) {
    arrivals.push_back({1, peer, data, 0});
    credits.push_back({1, peer, credit, 0});
  }
  for (int round = 0; round < 5; ++round) {
    auto input = c.make(valuesIn(round, rank));
    if (round > 0) {
      require(ncclWaitSignal(c.ranks, credits.data(), c.comm, c.stream.get()), "ncclWaitSignal");
    }
    if (inGroups) require(ncclGroupStart(), "ncclGroupStart");
    for (int k = 0; k < c.ranks; ++k) {
      const int peer = (c.rank + k) % c.ranks;
      require(ncclPutSignal(input.data(), count, ncclInt32, peer, window.get(), 4 + rank * part, data, 0, 0, c.comm,
                            c.stream.get()),
              "ncclPutSignal");
    }
    require(ncclWaitSignal(c.ranks, arrivals.data(), c.comm, c.stream.get()), "ncclWaitSignal");
    if (inGroups) require(ncclGroupEnd(), "ncclGroupEnd");
    c.stream.synchronize();
    const Bytes found = window.read();
    for (std::size_t from = 0; from < ranks; ++from) {
      const auto begin = found.begin() + static_cast<std::ptrdiff_t>(4 + from * part);
      requireSame(Bytes(begin, begin + static_cast<std::ptrdiff_t>(part)), valuesIn(round, from),
                  [&] { return "round " + std::to_string(round) + " from rank " + std::to_string(from); });
    }
    for (int peer = 0; peer < c.ranks; ++peer) {
      require(ncclSignal(peer, credit, 0, 0, c.comm, c.stream.get()), "ncclSignal");
    }
  }
  require(ncclWaitSignal(c.ranks, credits.data(), c.comm, c.stream.get()), "ncclWaitSignal");
  checkSum(c, c.comm, "before a window ends");
}

/// Signals accumulate, by context and index; one call waits for many of several peers, and those of one name may be
/// consumed by several calls and by several descriptors of a call.
template <class Backend>
void checkSignals(Client<Backend>& c) {
  const int next = (c.rank + 1) % c.ranks, previous = (c.rank + c.ranks - 1) % c.ranks;
  for (int ctx = 0; ctx < 2; ++ctx) {
    for (int index = 0; index < 3; ++index) {
      for (int i = 0; i < 4 + index; ++i)
        require(ncclSignal(next, index, ctx, 0, c.comm, c.stream.get()), "ncclSignal");
    }
  }
  std::vector<ncclWaitSignalDesc_t> first, rest;
  for (int ctx = 1; ctx >= 0; --ctx) {
    for (int index = 0; index < 3; ++index) {
      first.push_back({2, previous, index, ctx});
      first.push_back({1, previous, index, ctx});
      rest.push_back({1 + index, previous, index, ctx});
      rest.push_back({0, next, index, ctx});
    }
  }
  for (auto* each : {&first, &rest}) {
    require(ncclWaitSignal(static_cast<int>(each->size()), each->data(), c.comm, c.stream.get()), "ncclWaitSignal");
  }
  require(ncclWaitSignal(0, nullptr, c.comm, c.stream.get()), "ncclWaitSignal");
  // More descriptors than a kernel takes.
  std::vector<ncclWaitSignalDesc_t> many(70, ncclWaitSignalDesc_t{1, previous, 0, 0});
  for (int i = 0; i < 70; ++i) require(ncclSignal(next, 0, 0, 0, c.comm, c.stream.get()), "ncclSignal");
  require(ncclWaitSignal(70, many.data(), c.comm, c.stream.get()), "ncclWaitSignal");
  c.stream.synchronize();
}

/// A value goes around the ranks: each puts it on when it has arrived. With collectives before and after.
template <class Backend>
void checkRelay(Client<Backend>& c) {
  constexpr std::size_t count = 1000;
  const int next = (c.rank + 1) % c.ranks, previous = (c.rank + c.ranks - 1) % c.ranks;
  const ScopedWindow<Backend> window(c.comm, count * 4, NCCL_WIN_COLL_SYMMETRIC);
  auto input = c.make(encode(ncclInt32, valuesOf(5, 0, count)));
  auto sum = c.poisoned(count * 4), gathered = c.poisoned(count * 4 * static_cast<std::size_t>(c.ranks));
  ncclWaitSignalDesc_t arrival{1, previous, 0, 0};
  require(ncclAllReduce(input.data(), sum.data(), count, ncclInt32, ncclSum, c.comm, c.stream.get()), "AllReduce");
  if (c.rank > 0) require(ncclWaitSignal(1, &arrival, c.comm, c.stream.get()), "ncclWaitSignal");
  const void* from = c.rank == 0 ? input.data() : window.data();
  require(ncclPutSignal(from, count, ncclInt32, next, window.get(), 0, 0, 0, 0, c.comm, c.stream.get()), "put");
  if (c.rank == 0) require(ncclWaitSignal(1, &arrival, c.comm, c.stream.get()), "ncclWaitSignal");
  require(ncclAllGather(window.data(), gathered.data(), count, ncclInt32, c.comm, c.stream.get()), "AllGather");
  Bytes wanted;
  for (int rank = 0; rank < c.ranks; ++rank) {
    const Bytes values = encode(ncclInt32, valuesOf(5, 0, count));
    wanted.insert(wanted.end(), values.begin(), values.end());
  }
  requireSame(c.read(gathered), wanted, [] { return "a value that went around"; });
  checkSum(c, c.comm, "before a window ends");
}

/// A group with the same collectives on all ranks, and one-sided calls and messages among them on some: a wait comes
/// before the message that its signal is sent with.
template <class Backend>
void checkMixedOneSidedGroup(Client<Backend>& c) {
  constexpr std::size_t count = 100;
  const ScopedWindow<Backend> window(c.comm, count * 4, NCCL_WIN_COLL_SYMMETRIC);
  auto input = c.make(encode(ncclInt32, valuesOf(c.rank, 0, count)));
  auto gathered = c.poisoned(count * 4 * static_cast<std::size_t>(c.ranks)),
       gatheredAgain = c.poisoned(count * 4 * static_cast<std::size_t>(c.ranks)), message = c.poisoned(count * 4);
  const auto gather = [&](typename Backend::Memory& output) {
    require(ncclAllGather(input.data(), output.data(), count, ncclInt32, c.comm, c.stream.get()), "ncclAllGather");
  };
  const int last = c.ranks - 1;
  require(ncclGroupStart(), "ncclGroupStart");
  gather(gathered);
  if (c.rank == last) {
    ncclWaitSignalDesc_t arrival{1, 0, 0, 0};
    require(ncclWaitSignal(1, &arrival, c.comm, c.stream.get()), "ncclWaitSignal");
    require(ncclSend(input.data(), count, ncclInt32, 0, c.comm, c.stream.get()), "ncclSend");
  }
  if (c.rank == 0) {
    require(ncclRecv(message.data(), count, ncclInt32, last, c.comm, c.stream.get()), "ncclRecv");
    require(ncclPutSignal(input.data(), count, ncclInt32, last, window.get(), 0, 0, 0, 0, c.comm, c.stream.get()),
            "ncclPutSignal");
  }
  gather(gatheredAgain);
  require(ncclGroupEnd(), "ncclGroupEnd");
  c.stream.synchronize();
  requireSame(c.read(gathered), c.read(gatheredAgain), [] { return "the second all-gather"; });
  if (c.rank == last) requireSame(window.read(), encode(ncclInt32, valuesOf(0, 0, count)), [] { return "a put"; });
  if (c.rank == 0)
    requireSame(c.read(message), encode(ncclInt32, valuesOf(last, 0, count)), [] { return "a message"; });
  checkSum(c, c.comm, "before a window ends");
}

template <class Backend>
void checkOneSided(Client<Backend>& c) {
  for (const std::size_t count : {0, 1, 5000}) {
    for (const bool inGroups : {false, true}) {
      checkPuts(c, count, NCCL_WIN_COLL_SYMMETRIC, inGroups);
      checkPuts(c, count, 0, inGroups);
    }
  }
  checkSignals(c);
  checkRelay(c);
}

}  // namespace mscclpp::test
