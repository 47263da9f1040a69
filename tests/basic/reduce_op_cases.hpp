// Cases of basic/reduce_op.hpp and basic/pack_reducer.hpp: every operator on every type against an independent
// reference, and RuntimeOp against every operator.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <type_traits>

#include "float_format.hpp"
#include "mscclpp/basic/pack_reducer.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

/// The value of RuntimeOp that computes what Op does.
template <class Op>
inline constexpr RuntimeOp asRuntimeOp{std::is_same_v<Op, Sum>       ? ReduceOp::SUM
                                       : std::is_same_v<Op, Product> ? ReduceOp::PROD
                                       : std::is_same_v<Op, Min>     ? ReduceOp::MIN
                                       : std::is_same_v<Op, Max>     ? ReduceOp::MAX
                                                                     : ReduceOp::AVG};

/// Reduces with every operator, and with RuntimeOp for each of them: one kernel per type, since kernels cost time to
/// compile.
template <class T, class... Ops>
struct ReduceBody {
  Window<> to;    // one array of `packs` packs for each operator, and then one for each by RuntimeOp
  Window<> from;  // `ranks` arrays of `packs` packs
  int packs;
  int ranks;

  template <class Op>
  MSCCLPP_HOST_DEVICE Pack<T> reduce(const Pack<T>* in, const Op& op) const {
    PackReducer<T, Op> reducer(in[0], op);
    for (int r = 1; r < ranks; ++r) reducer.add(in[r * packs]);
    return reducer.finish(ranks);
  }

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    const auto block = grid.block();
    const auto* in = reinterpret_cast<const Pack<T>*>(from.at(rank));
    for (int p = block.rank(); p < packs; p += block.size()) {
      auto* out = reinterpret_cast<Pack<T>*>(to.at(rank)) + p;
      ((*out = reduce(in + p, Ops{}), out += packs), ...);
      const RuntimeOp chosen[] = {asRuntimeOp<Ops>...};
      for (const RuntimeOp& op : chosen) {
        *out = reduce(in + p, op);
        out += packs;
      }
    }
  }
};

/// The reduction of integers: modulo 2^bits of the accumulator.
template <class T, class Op>
T integerReference(const std::vector<T>& values) {
  using A = Accumulator<T>;
  if constexpr (std::is_same_v<Op, Min>) return *std::min_element(values.begin(), values.end());
  if constexpr (std::is_same_v<Op, Max>) return *std::max_element(values.begin(), values.end());
  constexpr bool product = std::is_same_v<Op, Product>;
  std::uint64_t total = product ? 1 : 0;
  for (const T value : values) {
    const auto next = static_cast<std::uint64_t>(value);
    total = product ? total * next : total + next;
  }
  if constexpr (std::is_same_v<Op, Average>)
    return static_cast<T>(static_cast<A>(total) / static_cast<A>(values.size()));
  return static_cast<T>(total);
}

/// The reduction of floating-point elements, in the accumulator type; element_cases.hpp checks narrow().
template <class T, class Op>
T floatReference(const std::vector<T>& values) {
  using A = Accumulator<T>;
  A total = static_cast<A>(decode(values[0]));
  for (std::size_t r = 1; r < values.size(); ++r) {
    const A next = static_cast<A>(decode(values[r]));
    if constexpr (std::is_same_v<Op, Product>) {
      total = total * next;
    } else if constexpr (std::is_same_v<Op, Min>) {
      if (std::isnan(total) || next < total) total = next;
    } else if constexpr (std::is_same_v<Op, Max>) {
      if (std::isnan(total) || next > total) total = next;
    } else {
      total = total + next;
    }
  }
  if constexpr (std::is_same_v<Op, Average>) total = total / static_cast<A>(values.size());
  return narrow<T>(total);
}

template <class T>
bool sameElement(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return a == b;
  } else {
    return sameValue(decode(a), decode(b));
  }
}

/// Whether two results are bitwise the same; of doubles on a GPU, which has NaNs with payloads, any two NaNs.
template <class T>
bool sameBits(T a, T b) {
  if constexpr (std::is_same_v<T, double> && Backend<>::onGpu) {
    if (std::isnan(a) && std::isnan(b)) return true;
  }
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <class T>
using Reference = T (*)(const std::vector<T>& values);

template <class T, class Op>
constexpr Reference<T> referenceFor() {
  if constexpr (std::is_integral_v<T>) {
    return integerReference<T, Op>;
  } else {
    return floatReference<T, Op>;
  }
}

template <class T, class... Ops>
void checkReductions(int ranks) {
  constexpr int packs = 100;
  constexpr std::size_t count = packs * packSize<T>;
  constexpr Reference<T> references[] = {referenceFor<T, Ops>()...};
  const auto inputs = randomElements<T>(count * static_cast<std::size_t>(ranks), static_cast<unsigned>(ranks));
  Backend<> backend;
  auto to = backend.allocate(1, 2 * sizeof...(Ops) * count * sizeof(T), poisonByte);
  auto from = backend.allocate(1, inputs.size() * sizeof(T), 0);
  from.write(0, inputs);
  backend.launch({1, 1, 1}, ReduceBody<T, Ops...>{to.window(), from.window(), packs, ranks});
  const auto results = to.template read<T>(0);
  for (std::size_t op = 0; op < sizeof...(Ops); ++op) {
    std::size_t wrong = 0;
    std::size_t different = 0;
    for (std::size_t i = 0; i < count; ++i) {
      different += !sameBits(results[op * count + i], results[(sizeof...(Ops) + op) * count + i]);
      std::vector<T> values;
      for (int r = 0; r < ranks; ++r) values.push_back(inputs[static_cast<std::size_t>(r) * count + i]);
      wrong += !sameElement(results[op * count + i], references[op](values));
    }
    INFO(ranks << " ranks, operator " << op);
    CHECK(wrong == 0);
    CHECK(different == 0);
  }
}

TEST_CASE_TEMPLATE("reduce_op: all operators", T, f16, bf16, f8e4m3, f8e5m2, float, double, std::int8_t, std::uint8_t,
                   std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t) {
  for (int ranks : {1, 2, 3, 8}) checkReductions<T, Sum, Product, Min, Max, Average>(ranks);
}

static_assert(RuntimeOp{ReduceOp::AVG}.op == ReduceOp::AVG && sizeof(PackReducer<float, Sum>) == sizeof(Pack<float>));

TEST_CASE("reduce_op: a RuntimeOp that names no operator is not valid") {
  for (const ReduceOp op : {ReduceOp::SUM, ReduceOp::PROD, ReduceOp::MAX, ReduceOp::MIN, ReduceOp::AVG}) {
    CHECK(RuntimeOp{op}.isValid());
  }
  CHECK_FALSE(RuntimeOp{ReduceOp::NOP}.isValid());
  CHECK_FALSE(RuntimeOp{static_cast<ReduceOp>(5)}.isValid());
}

#if !defined(__CUDACC__)  // whole arrays are reduced on CPUs
/// Arrays, and their first words, by RuntimeOp and by Op.
template <class T, class Op>
void checkArrays() {
  constexpr int ranks = 3;
  constexpr RuntimeOp chosen = asRuntimeOp<Op>;
  for (const std::size_t bytes : {sizeof(T), std::size_t{16}, 160 + 3 * sizeof(T)}) {
    std::vector<std::vector<T>> inputs;
    const std::byte* arrays[ranks];
    Word128 words[ranks] = {};
    for (int r = 0; r < ranks; ++r) {
      inputs.push_back(randomElements<T>(bytes / sizeof(T), static_cast<unsigned>(r + 5)));
      arrays[r] = reinterpret_cast<const std::byte*>(inputs.back().data());
      std::memcpy(&words[r], arrays[r], std::min(bytes, sizeof(Word128)));
    }
    std::vector<std::byte> expected(bytes);
    std::vector<std::byte> result(bytes);
    reduceArrays<T>(arrays, ranks, expected.data(), bytes, Op{});
    reduceArrays<T>(arrays, ranks, result.data(), bytes, chosen);
    CHECK(result == expected);
    const Word128 word = reduceWords<T>(words, chosen);
    CHECK(std::memcmp(&word, expected.data(), std::min(bytes, sizeof(Word128))) == 0);
  }
}

TEST_CASE_TEMPLATE("pack_reducer: arrays and words with RuntimeOp", T, f16, f8e5m2, double, std::int8_t,
                   std::uint64_t) {
  checkArrays<T, Sum>();
  checkArrays<T, Product>();
  checkArrays<T, Min>();
  checkArrays<T, Max>();
  checkArrays<T, Average>();
}
#endif

}  // namespace mscclpp::test
