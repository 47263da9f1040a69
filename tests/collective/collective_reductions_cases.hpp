// Cases of the collectives that reduce: reduce-scatter and reduce.
#pragma once

#include "collective_cases.hpp"
#include "tests/backend/sanitizer.hpp"

namespace mscclpp::test {

template <CollectiveConfig config>
using ReduceScatterOf = ReduceScatter<bf16, Sum, config>;
template <CollectiveConfig config>
using ReduceOf = Reduce<float, Sum, config>;

TEST_CASE("reduce-scatter: every protocol, in place and out of place") {
  checkSessions<ReduceScatterOf>();
}
TEST_CASE("reduce: every protocol, to changing roots, in place and out of place") {
  checkSessions<ReduceOf>();
}

/// Every operator, by the kernel of one collective.
template <class C, bool isSerial = false>
void checkRuntimeOp() {
  using T = typename C::Element;
  constexpr Protocol protocol = C::configuration.protocol;
  CAPTURE(protocol);
  const PipelineShape shape = isSerial ? PipelineShape{.tilePacks = 8, .blocks = 1, .slots = 4} : smallTiles;
  for (const ReduceOp op : {ReduceOp::SUM, ReduceOp::PROD, ReduceOp::MIN, ReduceOp::MAX, ReduceOp::AVG}) {
    CAPTURE(nameOf(op));
    TesterOf<C, isSerial> tester(3, capacityPacks * packSize<T>, shape);
    tester.op = op;
    tester.check(isSerial ? Shape{3, 1, 1} : shapeFor(protocol, 3), edgeCaseCalls<T>(3));
  }
}

TEST_CASE("reduce-scatter, reduce: an operator that is chosen at run time") {
  checkRuntimeOp<ReduceScatter<f8e4m3, RuntimeOp, CollectiveConfig{Protocol::LL16}>>();
  checkRuntimeOp<ReduceScatter<std::uint16_t, RuntimeOp, CollectiveConfig{Protocol::Simple, 3}>>();
  checkRuntimeOp<Reduce<f16, RuntimeOp, CollectiveConfig{Protocol::Sentinel, 3}>>();
  checkRuntimeOp<Reduce<std::int64_t, RuntimeOp, CollectiveConfig{Protocol::Simple}>>();
#if !defined(__CUDACC__)
  // Arrays in one piece, as a CPU rank that is one thread reduces them.
  checkRuntimeOp<ReduceScatter<f16, RuntimeOp, CollectiveConfig{Protocol::Simple}>, true>();
  checkRuntimeOp<Reduce<bf16, RuntimeOp, CollectiveConfig{Protocol::Simple, 3}>, true>();
#endif
}

// See collective_moves_cases.hpp.
#if !MSCCLPP_TEST_TSAN
TEST_CASE("reduce-scatter: these checks detect slots that are written before they were read") {
  checkDetectsTooFewSlots<ReduceScatterOf>();
}
#endif

}  // namespace mscclpp::test
