// The kernels of bench/fusion/cutlass: CUTLASS's own of a tile, and what becomes of it.
#pragma once

#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>

#include "gemm.hpp"
#include "mscclpp/fusion/cutlass/evt_row_exchange.cuh"
#include "mscclpp/fusion/cutlass/gemm_row_exchange.cuh"
#include "mscclpp/fusion/cutlass/stock_gemm.cuh"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::cutlassbench {

namespace detail {

using Element = cutlass::bfloat16_t;

inline void require(cutlass::Status status, const char* what) {
  if (status != cutlass::Status::kSuccess) {
    throw Error(std::string(what) + ": " + cutlassGetStatusString(status), ErrorCode::InternalError);
  }
}

/// A kernel with its arguments, ready to be launched.
template <class Kernel>
class Launch : public Gemm {
 public:
  using Adapter = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

  explicit Launch(const typename Adapter::Arguments& arguments) {
    require(Adapter::can_implement(arguments), "CUTLASS cannot do this problem");
    require(adapter_.initialize(arguments), "initialising a kernel of CUTLASS");
  }
  void enqueue(cudaStream_t stream) const override {
    require(Adapter::run(const_cast<typename Adapter::Params&>(adapter_.params()), stream),
            "launching a kernel of CUTLASS");
  }

 private:
  Adapter adapter_;
};

/// The arguments that do not depend on the epilogue.
template <class Kernel>
typename Kernel::Arguments argumentsOf(const Problem& problem) {
  typename Kernel::Arguments arguments{};
  arguments.mode = cutlass::gemm::GemmUniversalMode::kGemm;
  arguments.problem_shape = {problem.m, problem.n, problem.k, 1};
  arguments.mainloop = {static_cast<const Element*>(problem.a),
                        {problem.k, cute::Int<1>{}, 0},
                        static_cast<const Element*>(problem.b),
                        {problem.k, cute::Int<1>{}, 0}};
  if constexpr (requires { arguments.epilogue.thread.alpha; }) arguments.epilogue.thread.alpha = 1.0f;
  arguments.scheduler.max_swizzle_size = problem.swizzle;
  return arguments;
}

/// With shared memory left to the exchange, which the tiles but that of 192 columns have anyway.
template <int tile>
using StockOf = typename StockGemm<cutlassTiles[tile], Element, Element,
                                   cutlass::epilogue::fusion::LinearCombination<Element, float, void, float>,
                                   exchangeSharedBytes>::Type;
/// Few rows are fewer blocks of rows than ranks.
template <int tile>
inline constexpr RowDelivery deliveryOf =
    cutlassTiles[tile].columns < 128 ? RowDelivery::Redundant : RowDelivery::ToAll;
template <int tile>
using FusedOf = GemmRowExchange<StockOf<tile>, exchangeRanks, deliveryOf<tile>>;
template <int tile>
using EvtOf = EvtRowExchange<
    typename StockGemm<cutlassTiles[tile], Element, void,
                       cutlass::epilogue::fusion::Sm90EVT<ContributeTiles<Element, exchangeRanks, deliveryOf<tile>>,
                                                          cutlass::epilogue::fusion::Sm90AccFetch>>::Type>;

/// A fused kernel without the reduction at its end.
template <class Fused>
struct InsideOf : Fused {
  using typename Fused::Base;
  using typename Fused::Params;
  CUTLASS_DEVICE void operator()(const Params& params, char* shared) { Base::operator()(params, shared); }
};

template <class Kernel>
std::unique_ptr<Gemm> makeWithExchange(const Problem& problem, const Exchange& exchange) {
  auto arguments = argumentsOf<Kernel>(problem);
  auto& epilogue = Kernel::exchangeArguments(arguments);
  auto& args = epilogue.exchange;
  args.team = Team<exchangeRanks>(exchange.rank, exchangeRanks);
  args.window = exchange.window;
  args.epochs = {exchange.epochs};
  const auto rows = static_cast<std::size_t>(problem.m), columns = static_cast<std::size_t>(problem.n);
  args.scratch = Kernel::scratchFor(rows, columns);
  args.count = rows;
  args.wait = exchange.wait;
  epilogue.result = {makeMatrix(static_cast<bf16*>(problem.out), rows, columns)};
  return std::make_unique<Launch<Kernel>>(arguments);
}

template <class Stock>
std::unique_ptr<Gemm> makeStock(const Problem& problem) {
  auto arguments = argumentsOf<Stock>(problem);
  arguments.epilogue.ptr_D = static_cast<Element*>(problem.out);
  arguments.epilogue.dD = {problem.n, cute::Int<1>{}, 0};
  return std::make_unique<Launch<Stock>>(arguments);
}

template <class Fused>
constexpr FusedKernels fusedKernels() {
  if constexpr (mscclpp::detail::EpilogueExchange<typename Fused::Epilogue>::sumsTiles) {
    return {makeWithExchange<Fused>, nullptr};
  } else {
    return {makeWithExchange<Fused>, makeWithExchange<InsideOf<Fused>>};
  }
}

template <class Fused>
std::size_t exchangeBytes(int m, int n) {
  static_assert(firstEpoch == Fused::Scratch::firstEpoch && Fused::Scratch::initialByte == 0);
  return Fused::scratchFor(static_cast<std::size_t>(m), static_cast<std::size_t>(n)).windowBytes();
}

}  // namespace detail

template <int tile>
Kernels kernelsOf() {
  using namespace detail;
  return {makeStock<StockOf<tile>>, fusedKernels<FusedOf<tile>>(), fusedKernels<EvtOf<tile>>(),
          exchangeBytes<FusedOf<tile>>};
}

}  // namespace mscclpp::cutlassbench
