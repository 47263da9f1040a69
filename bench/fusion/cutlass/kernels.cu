// The kernels of bench/fusion/cutlass: CUTLASS's own of one tile, and what becomes of it.
#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>

#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "gemm.hpp"
#include "mscclpp/fusion/cutlass/gemm_row_exchange.cuh"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::cutlassbench {

namespace {

using Element = cutlass::bfloat16_t;
using TileShape = cute::Shape<cute::_128, cute::_256, cute::_64>;
using ClusterShape = cute::Shape<cute::_2, cute::_1, cute::_1>;

using Epilogue = cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, cutlass::layout::RowMajor, 8, Element,
    cutlass::layout::RowMajor, 8, cutlass::epilogue::TmaWarpSpecializedCooperative>::CollectiveOp;
using Mainloop = cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, cutlass::layout::RowMajor, 8, Element,
    cutlass::layout::ColumnMajor, 8, float, TileShape, ClusterShape,
    cutlass::gemm::collective::StageCountAutoCarveout<sizeof(typename Epilogue::SharedStorage)>,
    cutlass::gemm::KernelTmaWarpSpecializedCooperative>::CollectiveOp;
using Stock = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue>;

void require(cutlass::Status status, const char* what) {
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
  arguments.epilogue.thread.alpha = 1.0f;
  arguments.scheduler.max_swizzle_size = problem.swizzle;
  return arguments;
}

using Fused = GemmRowExchange<Stock, exchangeRanks, RowDelivery::ToAll>;

template <class Kernel>
std::unique_ptr<Gemm> makeWithExchange(const Problem& problem, const Exchange& exchange) {
  auto arguments = argumentsOf<Kernel>(problem);
  auto& args = arguments.epilogue.exchange;
  args.team = Team<exchangeRanks>(exchange.rank, exchangeRanks);
  args.window = exchange.window;
  args.epochs = {exchange.epochs};
  const auto rows = static_cast<std::size_t>(problem.m), columns = static_cast<std::size_t>(problem.n);
  args.scratch = Fused::scratchFor(rows, columns);
  args.count = rows;
  args.wait = exchange.wait;
  arguments.epilogue.result = {makeMatrix(static_cast<bf16*>(problem.out), rows, columns)};
  return std::make_unique<Launch<Kernel>>(arguments);
}

/// The fused kernel without the reduction at its end.
struct Inside : Fused {
  CUTLASS_DEVICE void operator()(const Params& params, char* shared) { Base::operator()(params, shared); }
};

}  // namespace

static_assert(firstEpoch == Fused::Scratch::firstEpoch && Fused::Scratch::initialByte == 0);

std::size_t exchangeBytes(int m, int n) {
  return Fused::scratchFor(static_cast<std::size_t>(m), static_cast<std::size_t>(n)).windowBytes();
}

std::unique_ptr<Gemm> makeStock(const Problem& problem) {
  auto arguments = argumentsOf<Stock>(problem);
  arguments.epilogue.ptr_D = static_cast<Element*>(problem.out);
  arguments.epilogue.dD = {problem.n, cute::Int<1>{}, 0};
  return std::make_unique<Launch<Stock>>(arguments);
}

std::unique_ptr<Gemm> makeFused(const Problem& problem, const Exchange& exchange) {
  return makeWithExchange<Fused>(problem, exchange);
}

std::unique_ptr<Gemm> makeInside(const Problem& problem, const Exchange& exchange) {
  return makeWithExchange<Inside>(problem, exchange);
}

}  // namespace mscclpp::cutlassbench
