// Dispatch and combine through port channels, on emulated threads; and mutants, each wrong in one place.
#include "port_transport_cases.hpp"
#include "tests/backend/longer_delays.hpp"
#include "tests/backend/races.hpp"

namespace mscclpp::test {

/// Flags that are put before their rows, which follow a while later.
struct HastyPorts : moe::PortTransport {
  static inline std::uint64_t delay = 0;
  template <class Warp, class Wait>
  static void putRow(const Warp& warp, const Channel& channel, const Put& row, const Put& flag, Wait& wait) {
    warp.sync();
    if (warp.rank() != 0) return;
    put(channel, flag, wait);
    moeDelay(delay);
    put(channel, row, wait);
  }
};
/// Rows that a lane puts without knowing whether the others have written their packs. By the time it does they have, so
/// that what is read is whole: the order is missing, which ThreadSanitizer detects.
struct UnsyncedPorts : moe::PortTransport {
  template <class Warp, class Wait>
  static void putRow(const Warp& warp, const Channel& channel, const Put& row, const Put& flag, Wait& wait) {
    if (warp.rank() != 0) return;
    moeDelay(20'000'000);
    put(channel, row, wait);
    put(channel, flag, wait);
  }
};

template <class RowTransport>
bool isDetected() {
  MoeParameters p = moeParameters(2, 2, 2, 4, 4, 4);
  for (auto& call : p.tokens) call[0] = call[1] = 4;
  p.dispatchOnly = true;
  const auto outcome = PortTester<RowTransport>(p, 2).run(1, 2, 10'000'000'000);
  return outcome.record || !outcome.error.empty();
}

TEST_CASE("moe ports: the checks detect flags before rows") {
  CHECK_FALSE(isDetected<moe::PortTransport>());
  countRaces([] {
    CHECK(isFoundWithLongerDelays([](std::uint64_t factor) {
      HastyPorts::delay = factor * 5'000'000;
      return isDetected<HastyPorts>();
    }));
  });
}

TEST_CASE("moe ports: ThreadSanitizer detects rows that are put too early") {
  CHECK(countRaces([] { isDetected<moe::PortTransport>(); }) == 0);
  const int races = countRaces([] { isDetected<UnsyncedPorts>(); });
  CHECK((races > 0) == detectsRaces);
}

}  // namespace mscclpp::test
