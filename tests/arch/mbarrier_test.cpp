// The limits of a barrier in shared memory, which its CPU twin enforces: what overflows would run into the parity.
#include "mscclpp/arch/mbarrier.hpp"

#include <doctest/doctest.h>

#include <cstdint>

#include "../basic/ending_signal.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

constexpr std::uint32_t limit = (1u << 20) - 1;

/// The signal that ends a process in which `steps` run on a barrier of one arrival a phase.
template <class Steps>
int endOf(Steps steps) {
  return signalThatEnds([&] {
    std::uint64_t barrier = 0;
    arch::mbarrierInit(&barrier, 1);
    steps(&barrier);
  });
}

}  // namespace

TEST_CASE("mbarrier: the most arrivals and bytes that a phase may have") {
  std::uint64_t barrier = 0;
  arch::mbarrierInit(&barrier, limit);
  for (std::uint32_t i = 0; i < limit; ++i) arch::mbarrierArrive(&barrier);
  CHECK(arch::mbarrierTest(&barrier, 0));
  CHECK_FALSE(arch::mbarrierTest(&barrier, 1));

  arch::mbarrierInit(&barrier, 1);
  arch::mbarrierArriveExpect(&barrier, limit);
  CHECK_FALSE(arch::mbarrierTest(&barrier, 0));
  arch::twin::updateBarrier(&barrier, 0, -std::int64_t{limit});
  CHECK(arch::mbarrierTest(&barrier, 0));
}

TEST_CASE("mbarrier: more than that ends the process") {
  const int trap = signalThatEnds([] { arch::trap(); });
  CHECK(trap != 0);
  CHECK(endOf([](std::uint64_t* barrier) { arch::mbarrierExpect(barrier, limit); }) == 0);
  CHECK(endOf([](std::uint64_t* barrier) { arch::mbarrierExpect(barrier, limit + 1); }) == trap);
  CHECK(endOf([](std::uint64_t* barrier) { arch::mbarrierArriveExpect(barrier, ~0u); }) == trap);
  CHECK(endOf([](std::uint64_t* barrier) {
          arch::mbarrierExpect(barrier, limit);
          arch::mbarrierExpect(barrier, 1);
        }) == trap);
  CHECK(endOf([](std::uint64_t* barrier) { arch::twin::updateBarrier(barrier, 0, -std::int64_t{limit} - 1); }) == trap);
  CHECK(endOf([](std::uint64_t* barrier) {
          arch::mbarrierArriveExpect(barrier, 16);
          arch::mbarrierArrive(barrier);  // the phase has all of its arrivals
        }) == trap);
  CHECK(endOf([](std::uint64_t* barrier) { arch::mbarrierInit(barrier, limit + 1); }) == trap);
}
