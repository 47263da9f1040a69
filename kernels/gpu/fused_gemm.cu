// The compiled GEMMs with a collective inside.
#include <algorithm>
#include <vector>

#include "kernels/fused_gemm.hpp"
#include "mscclpp/fusion/gemm/all_gather_gemm.hpp"
#include "mscclpp/fusion/gemm/gemm_reduce.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/collective_state.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/cuda/gpu.hpp"
#include "mscclpp/kernel.cuh"

namespace mscclpp::kernels {

namespace {

using Operands = GemmOperands<bf16, KeepPairs<bf16>>;

// A GPU has work for all multiprocessors if the weights are divided finely: for few rows, narrow tiles.
constexpr GemmShape narrow{.rows = 16, .columns = 64, .depth = 64, .stages = 4, .warpRows = 1, .warpColumns = 4};
constexpr GemmShape medium{.rows = 64, .columns = 64, .depth = 64, .stages = 4, .warpRows = 2, .warpColumns = 2};

// A part of a row for each warp: there are few rows, and every load of a warp is a trip to the memory.
using NarrowAllReduce =
    GemmReduce<bf16, GemmReduceConfig{.delivery = RowDelivery::Redundant, .tile = narrow, .packsPerLane = 1}>;
using MediumAllReduce = GemmReduce<bf16, GemmReduceConfig{.delivery = RowDelivery::ToAll, .tile = medium}>;
using WideAllReduce = GemmReduce<bf16, GemmReduceConfig{.delivery = RowDelivery::ToAll}>;
using ReduceScatterGemm = GemmReduce<bf16, GemmReduceConfig{.delivery = RowDelivery::ToOwner}>;
using GatherGemm = AllGatherGemm<bf16, AllGatherGemmConfig{}>;

// The most rows for which a kernel is chosen. Estimates: one hop sends `ranks` - 1 times the rows, but saves a hop; a
// wide tile needs as many rows to occupy a GPU.
constexpr std::size_t narrowRows = 64;
constexpr std::size_t mediumRows = 512;

/// Where a collective stores its rows.
template <class C>
struct ResultOf {
  using Type = StoreRows<bf16>;
};
template <AllGatherGemmConfig config>
struct ResultOf<AllGatherGemm<bf16, config>> {
  using Type = Matrix<bf16>;
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void run(const FusedGemmCall& call) const = 0;
  virtual void check() const = 0;
};

/// The calls of one collective C.
template <class C>
class KernelOf : public Kernel {
 public:
  KernelOf(Communicator& communicator, const GemmLayer& layer, std::size_t maxRows)
      : layer_(layer),
        state_(communicator, DeviceType::GPU,
               C::scratchFor(maxRows, layer.collective == GemmCollective::AllGather ? layer.depth : layer.width,
                             communicator.bootstrap()->getNranks()),
               maxRows) {
    // The same result and waits for all blocks: as many as are resident at once.
    const auto args = state_.args(maxRows);
    const std::size_t sharedBytes = C::sharedBytes(args, {});
    constexpr auto kernel = collectiveKernel<C, Operands, Result>;
    int device = 0;
    int multiprocessors = 0;
    MSCCLPP_CUDATHROW(cudaGetDevice(&device));
    MSCCLPP_CUDATHROW(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    MSCCLPP_CUDATHROW(detail::allowSharedMemory(kernel, sharedBytes));
    MSCCLPP_CUDATHROW(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_, kernel, C::maxBlockThreads, sharedBytes));
    if (blocks_ < 1) throw Error("a block of the fused GEMM does not fit on this GPU", ErrorCode::InvalidUsage);
    blocks_ = std::min(blocks_ * multiprocessors, maxBlocks);
  }

  void run(const FusedGemmCall& call) const override {
    const auto args = state_.args(call.rows);
    const auto slice =
        steppedPart(call.rows, C::sliceRows(call.rows, args.team.size()), static_cast<std::size_t>(args.team.rank()));
    const bool gathers = layer_.collective == GemmCollective::AllGather;
    const bool scatters = layer_.collective == GemmCollective::ReduceScatter;
    const Operands operands{
        makeMatrix(static_cast<const bf16*>(call.input), gathers ? slice.size() : call.rows, call.depth),
        makeMatrix(static_cast<const bf16*>(call.weight), call.width, call.depth),
        {}};
    const auto output = makeMatrix(static_cast<bf16*>(call.output), scatters ? slice.size() : call.rows, call.width);
    MSCCLPP_CUDATHROW(launch<C>({blocks_, C::maxBlockThreads}, call.stream, args, operands, Result{output}));
  }
  void check() const override { state_.check(); }

 private:
  using Result = typename ResultOf<C>::Type;

  GemmLayer layer_;
  CollectiveState<C> state_;
  int blocks_ = 0;
};

class GpuFusedGemm : public FusedGemm {
 public:
  GpuFusedGemm(Communicator& communicator, const GemmLayer& layer) : layer_(layer) {
    const auto add = [&]<class C>(std::size_t mostRows) {
      if (!kernels_.empty() && kernels_.back().mostRows >= layer.maxRows) return;
      const std::size_t rows = std::min(mostRows, layer.maxRows);
      kernels_.push_back({rows, std::make_unique<KernelOf<C>>(communicator, layer, rows)});
    };
    switch (layer.collective) {
      case GemmCollective::AllReduce:
        add.template operator()<NarrowAllReduce>(narrowRows);
        add.template operator()<MediumAllReduce>(mediumRows);
        add.template operator()<WideAllReduce>(layer.maxRows);
        break;
      case GemmCollective::ReduceScatter:
        add.template operator()<ReduceScatterGemm>(layer.maxRows);
        break;
      case GemmCollective::AllGather:
        add.template operator()<GatherGemm>(layer.maxRows);
        break;
    }
  }

  void run(const FusedGemmCall& given) const override {
    const FusedGemmCall call = sized(given, layer_);
    if (call.rows == 0) return;
    for (const auto& entry : kernels_) {
      if (call.rows <= entry.mostRows) return entry.kernel->run(call);
    }
  }
  void check() const override {
    for (const auto& entry : kernels_) entry.kernel->check();
  }

 private:
  struct Entry {
    std::size_t mostRows;
    std::unique_ptr<Kernel> kernel;
  };
  GemmLayer layer_;
  std::vector<Entry> kernels_;  ///< in increasing order of rows
};

}  // namespace

std::unique_ptr<FusedGemm> gpu::makeFusedGemm(Communicator& communicator, const GemmLayer& layer) {
  return std::make_unique<GpuFusedGemm>(communicator, layer);
}

}  // namespace mscclpp::kernels
