// Fills inputs and checks outputs, as functors that all threads of a grid run; for CPUs and GPUs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "data_rule.hpp"
#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "test_data.hpp"

namespace mscclpp::perf {

/// The indices of one thread of a grid: first, first + step, ...
struct GridStride {
  template <Grid GridType>
  MSCCLPP_INLINE explicit GridStride(const GridType& grid)
      : first(static_cast<std::size_t>(grid.blockIndex()) * static_cast<std::size_t>(grid.block().size()) +
              static_cast<std::size_t>(grid.block().rank())),
        step(static_cast<std::size_t>(grid.blockCount()) * static_cast<std::size_t>(grid.block().size())) {}
  std::size_t first;
  std::size_t step;
};

template <class Data>
struct InputFill {
  InputRule rule;
  int rank;
  typename Data::Type* elements;
  std::size_t count;

  template <Grid GridType>
  MSCCLPP_INLINE void operator()(const GridType& grid) const {
    const GridStride stride(grid);
    for (std::size_t i = stride.first; i < count; i += stride.step) elements[i] = Data::input(rule, rank, i);
  }
};

template <class Data>
struct OutputCheck {
  OutputData output;
  std::uint64_t* wrong;

  template <Grid GridType>
  MSCCLPP_INLINE void operator()(const GridType& grid) const {
    const GridStride stride(grid);
    const auto* elements = static_cast<const typename Data::Type*>(output.elements);
    const auto* guard = static_cast<const std::uint8_t*>(output.guard);
    std::uint64_t found = 0;
    for (std::size_t i = stride.first; i < output.count; i += stride.step) {
      found += Data::isCorrect(output.rule, i, elements[i]) ? 0 : 1;
    }
    for (std::size_t i = stride.first; i < guardBytes; i += stride.step) found += guard[i] == poisonByte ? 0 : 1;
    if (found != 0) arch::reduceAdd<arch::Order::Relaxed, arch::Scope::Device>(wrong, found);
  }
};

/// Calls f(Data{}) for the data of a collective: by element type for reductions, by element size for the others.
template <class F>
void visitData(CollectiveType collective, DataType type, const F& f) {
  const auto none = [] {};
  if (hasReduction(collective)) {
    visit(
        type, [&](auto tag) { f(ReducedData<typename decltype(tag)::Type>{}); }, none);
    return;
  }
  switch (sizeOf(type)) {
    case 1:
      return f(MovedData<std::uint8_t>{});
    case 2:
      return f(MovedData<std::uint16_t>{});
    case 4:
      return f(MovedData<std::uint32_t>{});
    case 8:
      return f(MovedData<std::uint64_t>{});
    default:
      return;
  }
}

/// TestData over Executor, which runs a functor on a grid: run(functor, number of indices, stream).
template <class Executor>
class TestDataOn : public TestData {
 public:
  void fillInput(CollectiveType collective, DataType type, const InputRule& rule, int rank, void* elements,
                 std::size_t count, CUstream_st* stream) override {
    visitData(collective, type, [&](auto data) {
      using Data = decltype(data);
      Executor::run(InputFill<Data>{rule, rank, static_cast<typename Data::Type*>(elements), count}, count, stream);
    });
  }
  void countWrong(CollectiveType collective, DataType type, const OutputData& output, std::uint64_t* wrong,
                  CUstream_st* stream) override {
    visitData(collective, type, [&](auto data) {
      Executor::run(OutputCheck<decltype(data)>{output, wrong}, std::max(output.count, guardBytes), stream);
    });
  }
};

}  // namespace mscclpp::perf
