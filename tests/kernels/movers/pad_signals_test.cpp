// The cases of pad signals on CPU threads, and mutants, whose weaker orders ThreadSanitizer must report.
#include "pad_signals_cases.hpp"
#include "tests/backend/races.hpp"

namespace mscclpp::test {
namespace {

/// A word to the peer, a signal; and the same back.
template <arch::Order put, arch::Order await>
void passMessages() {
  EmulatedBackend<1> backend;
  auto buffers = backend.allocate(2, PadMemory::bytes, 0);
  const PadMemory memory{buffers.window()};
  const auto policy = backend.wait();
  backend.launch({2, 1, 1}, [&](int rank, const auto&) {
    auto wait = policy;
    const auto channel = memory.channel(rank, 2, 0);
    std::uint64_t sum = 0;
    for (int round = 0; round < 100; ++round) {
      if (round % 2 == rank) {
        memory.data(1 - rank)[0] = static_cast<std::uint64_t>(round);
        channel.put<put>(1 - rank, wait);
      } else {
        channel.await<await>(1 - rank, wait);
        sum += memory.data(rank)[0];
      }
    }
    memory.data(rank)[1] = sum;
  });
}

}  // namespace

TEST_CASE("pad_signals mutants: a weaker order is a race, the original is none") {
  using enum arch::Order;
  CHECK(countRaces([] { passMessages<Release, Acquire>(); }) == 0);
  CHECK((countRaces([] { passMessages<Relaxed, Acquire>(); }) > 0) == detectsRaces);
  CHECK((countRaces([] { passMessages<Release, Relaxed>(); }) > 0) == detectsRaces);
}

}  // namespace mscclpp::test
