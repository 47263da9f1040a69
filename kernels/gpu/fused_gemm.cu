// The compiled GEMMs with a collective inside.
#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "host/bootstrap/group_agreement.hpp"
#include "kernels/backend.hpp"
#include "kernels/cutlass/gemm.hpp"
#include "kernels/fused_gemm.hpp"
#include "kernels/fused_gemm_choice.hpp"
#include "kernels/gpu/overlapped_gather.hpp"
#include "kernels/gpu/serial_gemm.hpp"
#include "kernels/gpu_budget.hpp"
#include "kernels/rms_norm.hpp"
#include "mscclpp/fusion/gemm/all_gather_gemm.hpp"
#include "mscclpp/fusion/gemm/gemm_packet_reduce.hpp"
#include "mscclpp/fusion/gemm/gemm_reduce.hpp"
#include "mscclpp/fusion/gemm/norm_rows.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/collective_state.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/cuda/gpu.hpp"
#include "mscclpp/kernel.cuh"

namespace mscclpp::kernels {

namespace {

using Operands = GemmOperands<bf16, KeepPairs<bf16>>;

// Tiles for few rows, by the most that they hold. They are so narrow that with 8192 columns nearly all multiprocessors
// have one, and their stages fill the shared memory of a Hopper GPU: what a multiprocessor has requested decides how
// fast it reads.
constexpr GemmShape rows16{.rows = 16, .columns = 64, .depth = 128, .stages = 8, .warpRows = 1, .warpDepths = 2};
constexpr GemmShape rows32{.rows = 32, .columns = 64, .depth = 128, .stages = 8, .warpRows = 1, .warpDepths = 2};
constexpr GemmShape rows64{
    .rows = 64, .columns = 64, .depth = 128, .stages = 6, .warpRows = 2, .warpColumns = 2, .warpDepths = 2};
constexpr GemmShape rows128{
    .rows = 128, .columns = 64, .depth = 128, .stages = 4, .warpRows = 2, .warpColumns = 2, .warpDepths = 2};
constexpr bool matches(const FewRowsTile& tile, const GemmShape& shape) {
  return tile.rows == static_cast<std::size_t>(shape.rows) && fewRowsColumns == static_cast<std::size_t>(shape.columns);
}
static_assert(matches(fewRowsTiles[0], rows16) && matches(fewRowsTiles[1], rows32) &&
              matches(fewRowsTiles[2], rows64) && matches(fewRowsTiles[3], rows128));

template <RowDelivery delivery, GemmShape tile>
using FewRows =
    GemmPacketReduce<bf16, GemmPacketReduceConfig{.delivery = delivery, .tile = tile, .hopBytes = gemmHopBytes}>;
template <GemmShape tile>
using GatherFewRows = AllGatherGemm<bf16, AllGatherGemmConfig{.tile = tile}>;
using WideAllReduce = GemmReduce<bf16, GemmReduceConfig{.delivery = RowDelivery::ToAll}>;
using ReduceScatterGemm = GemmReduce<bf16, GemmReduceConfig{.delivery = RowDelivery::ToOwner}>;
using GatherGemm = AllGatherGemm<bf16, AllGatherGemmConfig{}>;

// With a norm. A warp holds a whole row in registers.
template <RowDelivery delivery, GemmShape tile>
using NormGemm = GemmReduce<bf16, GemmReduceConfig{.delivery = delivery, .tile = tile}, AnyNormRows<bf16>>;
template <GemmShape tile>
using FewNormRows = NormGemm<RowDelivery::Redundant, tile>;
using WideNormAllReduce = NormGemm<RowDelivery::ToAll, GemmShape{}>;
using NormReduceScatter = NormGemm<RowDelivery::ToOwner, GemmShape{}>;
static_assert(mostFusedNormWidth == std::size_t{WideNormAllReduce::packsPerLane} * packSize<bf16> * 32);

/// Where a collective stores its rows.
template <class C>
struct ResultOf {
  using Type = StoreRows<bf16>;
};
template <AllGatherGemmConfig config>
struct ResultOf<AllGatherGemm<bf16, config>> {
  using Type = Matrix<bf16>;
};
template <GemmReduceConfig config>
struct ResultOf<GemmReduce<bf16, config, AnyNormRows<bf16>>> {
  using Type = AnyNormRows<bf16>;
};

/// The calls of one collective C.
template <class C>
class KernelOf : public GemmKernel {
 public:
  KernelOf(Communicator& communicator, const GemmLayer& layer, std::size_t maxRows)
      : layer_(layer),
        state_(communicator, DeviceType::GPU,
               C::scratchFor(maxRows, layer.collective == GemmCollective::AllGather ? layer.depth : layer.width,
                             communicator.bootstrap()->getNranks()),
               maxRows) {
    // The same result and waits for all blocks: as many as are resident at once.
    const std::size_t sharedBytes = KernelOf::sharedBytes();
    constexpr auto kernel = collectiveKernel<C, Operands, Result>;
    MSCCLPP_CUDATHROW(mscclpp::detail::allowSharedMemory(kernel, sharedBytes));
    MSCCLPP_CUDATHROW(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_, kernel, C::maxBlockThreads, sharedBytes));
    if (blocks_ < 1) throw Error("a block of the fused GEMM does not fit on this GPU", ErrorCode::InvalidUsage);
    blocks_ = std::min(blocks_ * gpu::multiprocessors(), maxBlocks);
  }

  void run(const FusedGemmCall& call, int blocks, KernelStart start) const override {
    const auto args = state_.args(call.rows);
    const auto slice =
        steppedPart(call.rows, C::sliceRows(call.rows, args.team.size()), static_cast<std::size_t>(args.team.rank()));
    const bool gathers = layer_.collective == GemmCollective::AllGather;
    const bool scatters = layer_.collective == GemmCollective::ReduceScatter;
    const Operands operands{
        makeMatrix(static_cast<const bf16*>(call.input), gathers ? slice.size() : call.rows, call.depth),
        makeMatrix(static_cast<const bf16*>(call.weight), call.width, call.depth),
        {}};
    const auto result = [&]() -> Result {
      if constexpr (std::is_same_v<Result, AnyNormRows<bf16>>) {
        return {call.width, call.norm->quantisation, arraysOf<bf16>(*call.norm)};
      } else {
        return {makeMatrix(static_cast<bf16*>(call.output), scatters ? slice.size() : call.rows, call.width)};
      }
    };
    const LaunchShape shape{blocks > 0 ? std::min(blocks, blocks_) : blocks_, C::maxBlockThreads};
    MSCCLPP_CUDATHROW(launch<C>(shape, call.stream, args, operands, result(), start));
  }
  void check() const override { state_.check(); }

  /// Of a block.
  static std::size_t sharedBytes() { return C::sharedBytes(typename C::Args{}, {}); }

 private:
  using Result = typename ResultOf<C>::Type;

  GemmLayer layer_;
  CollectiveState<C> state_;
  int blocks_ = 0;
};

/// A number of the current GPU.
int attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  MSCCLPP_CUDATHROW(cudaGetDevice(&device));
  MSCCLPP_CUDATHROW(cudaDeviceGetAttribute(&value, which, device));
  return value;
}
/// Whether it runs kernels for Hopper.
bool isHopper() {
  return attribute(cudaDevAttrComputeCapabilityMajor) == 9;
}

class GpuFusedGemm : public FusedGemm {
 public:
  GpuFusedGemm(Communicator& communicator, const GemmLayer& layer, std::shared_ptr<Collectives> collectives,
               std::optional<GemmForm> preferred)
      : layer_(layer), rank_(communicator.bootstrap()->getRank()), ranks_(communicator.bootstrap()->getNranks()) {
    const int multiprocessors = gpu::multiprocessors();
    const int wanted = layer.maxBlocks > 0 ? std::min(layer.maxBlocks, multiprocessors) : multiprocessors;
    share_ = reserveOnAllRanks(*communicator.bootstrap(), gpu::currentBudget(), wanted, "FusedGemm");
    // The share counts multiprocessors. With all of them, no kernel of another object runs at the same time.
    blocks_ = share_->blocks() == multiprocessors ? 0 : share_->blocks();
    cutlassBlocks_ = cutlassGemmBlocks(share_->blocks(), multiprocessors);
    agreeOnForms(*communicator.bootstrap(), std::move(collectives), preferred);
    for (std::size_t rows = 0; rows <= layer.maxRows; ++rows) forms_.push_back(choose(rows));
    // Each kernel, and its scratch, is for the calls that take it. Where the shared memory is smaller than Hopper's,
    // those for few rows are left to the kernels for many, which need 96 KiB.
    std::size_t previous = 0;
    const auto add = [&]<class C>(std::size_t last) {
      const std::size_t rows = mostRows(GemmForm::Fused, previous + 1, std::min(last, layer.maxRows));
      if (rows > 0) kernels_.push_back({rows, std::make_unique<KernelOf<C>>(communicator, layer, rows)});
      previous = std::max(previous, last);
    };
    const auto addFewRows = [&]<class C>(const GemmShape& tile, int ranks = 1) {
      if (KernelOf<C>::sharedBytes() <= decisive_.sharedBytes)
        add.template operator()<C>(static_cast<std::size_t>(tile.rows) * static_cast<std::size_t>(ranks));
    };
    switch (layer.collective) {
      case GemmCollective::AllReduce:
        if (layer.hasNorm) {
          addFewRows.template operator()<FewNormRows<rows16>>(rows16);
          addFewRows.template operator()<FewNormRows<rows64>>(rows64);
          add.template operator()<WideNormAllReduce>(layer.maxRows);
          break;
        }
        addFewRows.template operator()<FewRows<RowDelivery::ToAll, rows16>>(rows16);
        addFewRows.template operator()<FewRows<RowDelivery::ToAll, rows32>>(rows32);
        addFewRows.template operator()<FewRows<RowDelivery::ToAll, rows64>>(rows64);
        addFewRows.template operator()<FewRows<RowDelivery::ToAll, rows128>>(rows128);
        add.template operator()<WideAllReduce>(layer.maxRows);
        break;
      case GemmCollective::ReduceScatter:
        if (layer.hasNorm) {
          add.template operator()<NormReduceScatter>(layer.maxRows);
          break;
        }
        addFewRows.template operator()<FewRows<RowDelivery::ToOwner, rows16>>(rows16);
        addFewRows.template operator()<FewRows<RowDelivery::ToOwner, rows32>>(rows32);
        addFewRows.template operator()<FewRows<RowDelivery::ToOwner, rows64>>(rows64);
        addFewRows.template operator()<FewRows<RowDelivery::ToOwner, rows128>>(rows128);
        add.template operator()<ReduceScatterGemm>(layer.maxRows);
        break;
      case GemmCollective::AllGather:
        // A tile has rows of one rank.
        addFewRows.template operator()<GatherFewRows<rows16>>(rows16, ranks_);
        addFewRows.template operator()<GatherFewRows<rows64>>(rows64, ranks_);
        add.template operator()<GatherGemm>(layer.maxRows);
        break;
    }
    const std::size_t overlapped = mostRows(GemmForm::Overlapped, 1, layer.maxRows);
    if (overlapped > 0) {
      overlapped_ = std::make_unique<OverlappedGather>(communicator, serial_->cublas(), overlapped, layer.depth);
    }
    if (serial_ != nullptr) {
      const mscclpp::detail::GroupAgreement agreement(*communicator.bootstrap(), "FusedGemm");
      agreement.runStep("allocate what lies between a GEMM and a collective", [&] {
        serial_->allocate(mostRows(GemmForm::Serial, 1, layer.maxRows));
        return std::vector<char>();
      });
    }
    const std::size_t rows = mostRows(GemmForm::Cutlass, 1, layer.maxRows);
    if (rows > 0) cutlass_ = findCutlassGemm(layer.collective, ranks_)(communicator, place(), decisive_.layer, rows);
  }

  void run(const FusedGemmCall& given) const override {
    FusedGemmCall call = sized(given, layer_);
    if (call.rows == 0) return;
    RmsNormCall norm;
    if (layer_.hasNorm) {
      norm = normOf(call, layer_, rank_, ranks_);
      call.norm = &norm;
    }
    const GemmForm form = this->form(call.rows);
    if (form == GemmForm::Serial) return serial_->run(call);
    if (form == GemmForm::Overlapped) {
      return overlapped_->run(call, planOverlappedGather(place(), decisive_.layer, call.rows).parts);
    }
    const auto isFor = [&](const Entry& entry) { return call.rows <= entry.mostRows; };
    const bool isCutlass = form == GemmForm::Cutlass;
    const GemmKernel& kernel = isCutlass ? *cutlass_ : *std::find_if(kernels_.begin(), kernels_.end(), isFor)->kernel;
    CallOrder::Turn turn = share_->begin(call.stream);
    kernel.run(call, isCutlass ? decisive_.cutlassBlocks : blocks_, share_->start());
    turn.end();
  }
  GemmForm form(std::size_t rows) const override { return rows < forms_.size() ? forms_[rows] : choose(rows); }
  void check() const override {
    for (const auto& entry : kernels_) entry.kernel->check();
    if (cutlass_) cutlass_->check();
    if (serial_) serial_->check();
    if (overlapped_) overlapped_->check();
  }

 private:
  struct Entry {
    std::size_t mostRows;
    std::unique_ptr<GemmKernel> kernel;
  };

  /// What decides on the form of a call.
  struct Decisive {
    std::size_t rates;  ///< index in gemmRates
    GemmLayer layer;
    int cutlassBlocks;  ///< 0: there are no kernels of CUTLASS
    bool hasSerial;
    std::size_t sharedBytes;  ///< the most of a block
    std::optional<GemmForm> preferred;
  };
  static_assert(std::is_trivially_copyable_v<Decisive>);

  GemmForm choose(std::size_t rows) const {
    return chooseGemm(estimateGemm(place(), decisive_.layer, rows),
                      formsOf(place(), decisive_.layer, rows, serial_ != nullptr), decisive_.preferred);
  }
  GemmPlace place() const { return {gemmRates[decisive_.rates], decisive_.cutlassBlocks, ranks_}; }

  /// All ranks take the same form of each call: one that all ranks have, by rank 0's rates and layer, of which other
  /// ranks may have more or fewer columns.
  void agreeOnForms(Bootstrap& bootstrap, std::shared_ptr<Collectives> collectives, std::optional<GemmForm> preferred) {
    const mscclpp::detail::GroupAgreement agreement(bootstrap, "FusedGemm");
    const auto all = agreement.runStep("choose between kernels", [&] {
      const bool takesSerial = serialGemmAccepts(layer_, static_cast<std::size_t>(ranks_), ranks_);
      if (collectives != nullptr && takesSerial) serial_ = SerialGemm::make(std::move(collectives), layer_, ranks_);
      const bool hasCutlass =
          findCutlassGemm(layer_.collective, ranks_) != nullptr && isHopper() && cutlassAccepts(layer_);
      const Decisive own{gemmRatesOf(gpuBackend().deviceName()),
                         layer_,
                         hasCutlass ? cutlassBlocks_ : 0,
                         serial_ != nullptr,
                         static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)),
                         preferred};
      std::vector<char> bytes(sizeof(own));
      std::memcpy(bytes.data(), &own, sizeof(own));
      return bytes;
    });
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      Decisive of{};
      if (all[rank].size() == sizeof(of)) std::memcpy(&of, all[rank].data(), sizeof(of));
      if (rank == 0) decisive_ = of;
      requireSameLayer(of.layer, static_cast<int>(rank), decisive_.layer);
      if (!of.hasSerial) serial_.reset();
      decisive_.cutlassBlocks = std::min(decisive_.cutlassBlocks, of.cutlassBlocks);
      decisive_.sharedBytes = std::min(decisive_.sharedBytes, of.sharedBytes);
    }
    if (!fusedGemmAccepts(layer_) && serial_ == nullptr) {
      throw Error("a FusedGemm with a norm of width " + std::to_string(layer_.width) + ", above " +
                      std::to_string(mostFusedNormWidth) +
                      ": use an all-reduce, pass the Collectives of the communicator, and have cuBLAS on all ranks",
                  ErrorCode::InvalidUsage);
    }
  }

  /// Of `first` to `last` rows, the most of a call in this form; 0: none is.
  std::size_t mostRows(GemmForm wanted, std::size_t first, std::size_t last) const {
    for (std::size_t rows = last; rows >= first; --rows) {
      if (form(rows) == wanted) return rows;
    }
    return 0;
  }

  GemmLayer layer_;
  int rank_, ranks_;
  std::unique_ptr<GpuBudget::Share> share_;
  int blocks_;         ///< the most of a kernel; 0: as many as fit
  int cutlassBlocks_;  ///< the same of CUTLASS's
  std::unique_ptr<SerialGemm> serial_;
  Decisive decisive_{};
  std::vector<GemmForm> forms_;                   ///< of calls with 0, 1, ... rows: no call evaluates the model
  std::vector<Entry> kernels_;                    ///< in increasing order of rows
  std::unique_ptr<GemmKernel> cutlass_;           ///< null if no call takes it
  std::unique_ptr<OverlappedGather> overlapped_;  ///< the same
};

}  // namespace

std::unique_ptr<FusedGemm> gpu::makeFusedGemm(Communicator& communicator, const GemmLayer& layer,
                                              std::shared_ptr<Collectives> collectives,
                                              std::optional<GemmForm> preferred) {
  return std::make_unique<GpuFusedGemm>(communicator, layer, std::move(collectives), preferred);
}

}  // namespace mscclpp::kernels
