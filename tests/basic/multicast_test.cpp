// basic/multicast.hpp on CPU ranks: every type, operator and width, and concurrent reductions into replicas.
#include "mscclpp/basic/multicast.hpp"

#include <doctest/doctest.h>

#include "tests/backend/multicast.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {
namespace {

constexpr std::size_t count = 96;  // elements

template <class T, class Op>
T reduced(const std::vector<std::vector<T>>& inputs, std::size_t i) {
  auto total = widen<T>(inputs[0][i]);
  for (std::size_t r = 1; r < inputs.size(); ++r) total = Op::combine(total, widen<T>(inputs[r][i]));
  if constexpr (!std::is_integral_v<T>) {
    if (total != total) total = std::numeric_limits<Accumulator<T>>::quiet_NaN();
  }
  return narrow<T>(total);
}

/// Each rank reduces all elements, offset by one vector, into its output.
template <class T, int N, HardwareReduceOp op, Accumulation in>
void checkLoad(int ranks) {
  INFO(sizeof(T), " bytes, width ", N, ", operator ", static_cast<int>(op), ", ranks ", ranks);
  using Op = typename detail::OperatorOf<op>::Type;
  EmulatedBackend<1> backend;
  auto memory = backend.allocate(ranks, count * sizeof(T), 0);
  auto output = backend.allocate(ranks, count * sizeof(T), 0);
  const auto window = output.window();
  std::vector<std::vector<T>> inputs;
  for (int r = 0; r < ranks; ++r) {
    inputs.push_back(randomElements<T>(count, static_cast<unsigned>(17 * r + N)));
    memory.write(r, inputs.back());
  }
  EmulatedMulticast multicast(memory.window(), ranks);
  backend.launch({ranks, 1, 1}, [&](int rank, const auto&) {
    auto* to = reinterpret_cast<Vector<T, N>*>(window.at(rank));
    const MulticastPointer<T> from{multicast.address()};
    for (std::size_t v = 0; v < count / N; ++v) to[v] = (from + v * N).template loadReduce<N, op, in>();
  });
  std::vector<T> expected(count);
  for (std::size_t i = 0; i < count; ++i) expected[i] = reduced<T, Op>(inputs, i);
  for (int r = 0; r < ranks; ++r) CHECK(firstDifference(output.template read<T>(r), expected) == -1);
}

/// Small integers, whose sums are exact in every type, so that the order of the ranks does not matter.
template <class T>
std::vector<T> smallIntegers(unsigned seed) {
  std::vector<T> data(count);
  for (std::size_t i = 0; i < count; ++i)
    data[i] = narrow<T>(static_cast<Accumulator<T>>(static_cast<unsigned>((i * 7 + seed * 5) % 13)));
  return data;
}

/// All ranks concurrently reduce into all replicas, some of them twice.
template <class T, int N, HardwareReduceOp op>
void checkStoreReduce(int ranks) {
  INFO(sizeof(T), " bytes, width ", N, ", operator ", static_cast<int>(op), ", ranks ", ranks);
  using Op = typename detail::OperatorOf<op>::Type;
  EmulatedBackend<1> backend;
  auto memory = backend.allocate(ranks, count * sizeof(T), 0);
  std::vector<std::vector<T>> values, expected;
  for (int r = 0; r < ranks; ++r) {
    values.push_back(smallIntegers<T>(static_cast<unsigned>(r)));
    expected.push_back(smallIntegers<T>(static_cast<unsigned>(100 + r)));
    memory.write(r, expected.back());
  }
  EmulatedMulticast multicast(memory.window(), ranks);
  backend.launch({ranks, 1, 1}, [&](int rank, const auto&) {
    const MulticastPointer<T> to{multicast.address()};
    for (std::size_t v = 0; v < count / N; ++v) {
      Vector<T, N> value;
      for (int i = 0; i < N; ++i)
        value[i] = values[static_cast<std::size_t>(rank)][v * N + static_cast<std::size_t>(i)];
      (to + v * N).template storeReduce<op>(value);
    }
  });
  for (int r = 0; r < ranks; ++r) {
    for (std::size_t i = 0; i < count; ++i) {
      T& element = expected[static_cast<std::size_t>(r)][i];
      for (const auto& value : values) element = narrow<T>(Op::combine(widen<T>(element), widen<T>(value[i])));
    }
    CHECK(firstDifference(memory.template read<T>(r), expected[static_cast<std::size_t>(r)]) == -1);
  }
}

/// Checks every row of the table for T and a width; returns the number of rows, so that a missing row is detected.
template <class T, int N>
int checkWidth() {
  int rows = 0;
  const auto withOp = [&]<HardwareReduceOp op>() {
    const auto withAccumulation = [&]<Accumulation in>() {
      if constexpr (arch::multimemLoadReduces(op, elementKind<T>, N * static_cast<int>(sizeof(T)), in)) {
        ++rows;
        checkLoad<T, N, op, in>(1);
        checkLoad<T, N, op, in>(3);
        checkLoad<T, N, op, in>(8);
      }
    };
    withAccumulation.template operator()<Accumulation::Native>();
    withAccumulation.template operator()<Accumulation::F32>();
    withAccumulation.template operator()<Accumulation::F16>();
    if constexpr (arch::multimemStoreReduces(op, elementKind<T>, N * static_cast<int>(sizeof(T)))) {
      ++rows;
      checkStoreReduce<T, N, op>(4);
    }
  };
  withOp.template operator()<HardwareReduceOp::Add>();
  withOp.template operator()<HardwareReduceOp::Min>();
  withOp.template operator()<HardwareReduceOp::Max>();
  return rows;
}

template <class T>
int checkType() {
  return checkWidth<T, 1>() + checkWidth<T, 2>() + checkWidth<T, 4>() + checkWidth<T, 8>() + checkWidth<T, 16>();
}

}  // namespace

TEST_CASE("multicast: every type, operator, width and accumulation of the table") {
  CHECK(checkType<f16>() == 3 * (4 + 3));
  CHECK(checkType<bf16>() == 3 * (4 + 3));
  CHECK(checkType<float>() == 3 * 2);
  CHECK(checkType<double>() == 2);
  CHECK(checkType<std::int32_t>() == 6);
  CHECK(checkType<std::uint32_t>() == 6);
  CHECK(checkType<std::int64_t>() == 6);
  CHECK(checkType<std::uint64_t>() == 6);
  CHECK(checkType<f8e4m3>() == 3 * 4);
  CHECK(checkType<f8e5m2>() == 3 * 4);
}

static_assert(multicastWidth<bf16, HardwareReduceOp::Add> == 8 && multicastWidth<float, HardwareReduceOp::Add> == 4);
static_assert(multicastWidth<float, HardwareReduceOp::Min> == 0 && multicastWidth<double, HardwareReduceOp::Add> == 1);
static_assert(multicastWidth<std::int64_t, HardwareReduceOp::Max> == 1 &&
              multicastWidth<std::int8_t, HardwareReduceOp::Add> == 0);

TEST_CASE("multicast: a store reaches every replica and changes nothing else") {
  constexpr int ranks = 5;
  EmulatedBackend<1> backend;
  auto memory = backend.allocate(ranks, 64, poisonByte);
  EmulatedMulticast multicast(memory.window(), ranks);
  const auto data = randomBits<std::byte>(28, 5);
  backend.launch({1, 1, 1}, [&](int, const auto&) {
    const auto vector = [&]<class V>(std::size_t from, V& to) { std::memcpy(&to, data.data() + from, sizeof(V)); };
    Vector<std::int8_t, 16> wide;
    Vector<f16, 4> half;
    Vector<float, 1> one;
    vector(0, wide);
    vector(16, half);
    vector(24, one);
    MulticastPointer<std::int8_t>{multicast.address(16)}.store(wide);
    MulticastPointer<f16>{multicast.address(32)}.store(half);
    MulticastPointer<float>{multicast.address(40)}.store(one);
  });
  std::vector<std::byte> expected(64, std::byte{poisonByte});
  std::copy(data.begin(), data.end(), expected.begin() + 16);
  for (int r = 0; r < ranks; ++r) CHECK(firstDifference(memory.read(r), expected) == -1);
}

}  // namespace mscclpp::test
