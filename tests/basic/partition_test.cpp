// Parts cover all items once, in order, for any number of items.
#include "mscclpp/basic/partition.hpp"

#include <doctest/doctest.h>

using namespace mscclpp;

TEST_CASE("partition: even parts cover all items, in order, and differ by one at most") {
  for (std::size_t n = 0; n <= 40; ++n) {
    for (std::size_t parts = 1; parts <= 12; ++parts) {
      std::size_t next = 0;
      std::size_t previous = n;
      for (std::size_t i = 0; i < parts; ++i) {
        const Range part = evenPart(n, parts, i);
        REQUIRE(part.begin == next);
        REQUIRE(part.size() >= n / parts);
        REQUIRE(part.size() <= ceilDivide(n, parts));
        REQUIRE(part.size() <= previous);
        previous = part.size();
        next = part.end;
      }
      REQUIRE(next == n);
    }
  }
}

TEST_CASE("partition: stepped parts cover all items, each from its multiple of the step") {
  for (std::size_t n = 0; n <= 40; ++n) {
    for (std::size_t step = 1; step <= 12; ++step) {
      std::size_t covered = 0;
      for (std::size_t i = 0; i < ceilDivide(n, step) + 3; ++i) {
        const Range part = steppedPart(n, step, i);
        REQUIRE(part.begin <= part.end);
        REQUIRE(part.size() <= step);
        if (part.size() > 0) REQUIRE(part.begin == i * step);
        REQUIRE((part.size() == step || part.end == n));
        covered += part.size();
      }
      REQUIRE(covered == n);
    }
  }
}

TEST_CASE("partition: sizes beyond 32 bits") {
  constexpr std::size_t n = (std::size_t{1} << 40) + 5;
  CHECK(evenPart(n, 8, 7).end == n);
  CHECK(evenPart(n, 8, 0).size() == (n + 7) / 8);
  CHECK(steppedPart(n, std::size_t{1} << 33, 128).size() == 5);
  CHECK(roundUp(n, 16) == n + 11);
  CHECK(ceilDivide(0, 7) == 0);
  CHECK(roundUp(0, 8) == 0);
}
