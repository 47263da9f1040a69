// The limits of a barrier in shared memory, which the CPU implementation enforces: an overflow would change the parity.
#include "mscclpp/arch/mbarrier.hpp"

#include <doctest/doctest.h>

#include <cstdint>

#include "tests/basic/death_test.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

constexpr std::uint32_t limit = (1u << 20) - 1;

/// The signal that terminates a process which runs `steps` on a barrier with one arrival per phase.
template <class Steps>
int terminationSignalOfSteps(Steps steps) {
  return terminationSignal([&] {
    std::uint64_t barrier = 0;
    arch::mbarrierInit(&barrier, 1);
    steps(&barrier);
  });
}

}  // namespace

TEST_CASE("mbarrier: the largest numbers of arrivals and bytes of a phase") {
  std::uint64_t barrier = 0;
  arch::mbarrierInit(&barrier, limit);
  for (std::uint32_t i = 0; i < limit; ++i) arch::mbarrierArrive(&barrier);
  CHECK(arch::mbarrierTest(&barrier, 0));
  CHECK_FALSE(arch::mbarrierTest(&barrier, 1));

  arch::mbarrierInit(&barrier, 1);
  arch::mbarrierArriveExpect(&barrier, limit);
  CHECK_FALSE(arch::mbarrierTest(&barrier, 0));
  arch::host::updateBarrier(&barrier, 0, -std::int64_t{limit});
  CHECK(arch::mbarrierTest(&barrier, 0));
}

TEST_CASE("mbarrier: larger numbers terminate the process") {
  const int trap = terminationSignal([] { arch::trap(); });
  CHECK(trap != 0);
  CHECK(terminationSignalOfSteps([](std::uint64_t* barrier) { arch::mbarrierExpect(barrier, limit); }) == 0);
  CHECK(terminationSignalOfSteps([](std::uint64_t* barrier) { arch::mbarrierExpect(barrier, limit + 1); }) == trap);
  CHECK(terminationSignalOfSteps([](std::uint64_t* barrier) { arch::mbarrierArriveExpect(barrier, ~0u); }) == trap);
  CHECK(terminationSignalOfSteps([](std::uint64_t* barrier) {
          arch::mbarrierExpect(barrier, limit);
          arch::mbarrierExpect(barrier, 1);
        }) == trap);
  CHECK(terminationSignalOfSteps(
            [](std::uint64_t* barrier) { arch::host::updateBarrier(barrier, 0, -std::int64_t{limit} - 1); }) == trap);
  CHECK(terminationSignalOfSteps([](std::uint64_t* barrier) {
          arch::mbarrierArriveExpect(barrier, 16);
          arch::mbarrierArrive(barrier);  // the last arrival of the phase
        }) == trap);
  CHECK(terminationSignalOfSteps([](std::uint64_t* barrier) { arch::mbarrierInit(barrier, limit + 1); }) == trap);
}
