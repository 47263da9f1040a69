// Vectors are accessed as words and keep every bit.
#include "mscclpp/basic/vector.hpp"

#include <doctest/doctest.h>

#include <cstring>

#include "tests/backend/test_data.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

static_assert(sizeof(Vector<std::uint16_t, 2>) == 4 && alignof(Vector<std::uint16_t, 2>) == 4);
static_assert(sizeof(Vector<float, 8>) == 32 && alignof(Vector<float, 8>) == 16);
static_assert(packSize<double> == 2 && packSize<float> == 4 && packSize<bf16> == 8 && packSize<f8e4m3> == 16);
static_assert(sizeof(Pack<bf16>) == 16 && alignof(Pack<bf16>) == 16);

TEST_CASE_TEMPLATE("vector: a pack and its word hold the same bytes", T, float, double, bf16, f8e5m2, std::int64_t) {
  const auto elements = randomBits<T>(packSize<T>, 1);
  Pack<T> pack;
  for (int i = 0; i < packSize<T>; ++i) pack[i] = elements[static_cast<std::size_t>(i)];
  const Word128 word = toWord<T>(pack);
  CHECK(std::memcmp(&word, elements.data(), 16) == 0);
  const Pack<T> back = fromWord<T>(word);
  CHECK(std::memcmp(&back, &pack, 16) == 0);
}

TEST_CASE("vector: words compare by both halves") {
  CHECK(Word128{1, 2} == Word128{1, 2});
  CHECK_FALSE(Word128{1, 2} == Word128{1, 3});
  CHECK_FALSE(Word128{1, 2} == Word128{0, 2});
}
