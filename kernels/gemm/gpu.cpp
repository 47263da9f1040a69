// The compiled GEMMs with a collective inside.
#include "mscclpp/host/cuda/gpu.hpp"

#include <algorithm>
#include <exception>
#include <string>
#include <type_traits>
#include <vector>

#include "host/bootstrap/group_agreement.hpp"
#include "kernels/backend.hpp"
#include "kernels/gemm/cutlass/gemm.hpp"
#include "kernels/gemm/form_choice.hpp"
#include "kernels/gemm/fused_gemm.hpp"
#include "kernels/gemm/kernels.hpp"
#include "kernels/gemm/overlapped_gather.hpp"
#include "kernels/gemm/serial_gemm.hpp"
#include "kernels/gpu/attribute.hpp"
#include "kernels/gpu_budget.hpp"
#include "kernels/rms_norm.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"

namespace mscclpp::kernels {

namespace {

/// Whether it runs kernels for Hopper.
bool isHopper() {
  return gpu::attribute(cudaDevAttrComputeCapabilityMajor) == 9;
}
/// Throws Error(InvalidUsage) unless it multiplies fp8.
void requireFp8() {
  constexpr int least = 89;
  if (10 * gpu::attribute(cudaDevAttrComputeCapabilityMajor) + gpu::attribute(cudaDevAttrComputeCapabilityMinor) <
      least) {
    throw Error("a FusedGemm of fp8 needs a GPU of compute capability 8.9 or newer: use bfloat16",
                ErrorCode::InvalidUsage);
  }
  if (gemmKernelsArchitecture<f8e4m3>() < least) {
    throw Error(
        "a FusedGemm of fp8 needs kernels for compute capability 8.9 or newer: build the library with the GPU's "
        "architecture in -Dgpu_arch",
        ErrorCode::InvalidUsage);
  }
}

class GpuFusedGemm : public FusedGemm {
 public:
  GpuFusedGemm(Communicator& communicator, const GemmLayer& layer, std::shared_ptr<Collectives> collectives,
               std::optional<GemmForm> preferred, SharedCublas* cublas)
      : layer_(layer),
        rank_(communicator.bootstrap()->getRank()),
        ranks_(communicator.bootstrap()->getNranks()),
        monitor_(WaitMonitor::ofTeam(communicator, DeviceType::GPU)) {
    const int multiprocessors = gpu::multiprocessors();
    const int wanted = layer.maxBlocks > 0 ? std::min(layer.maxBlocks, multiprocessors) : multiprocessors;
    share_ = reserveOnAllRanks(*communicator.bootstrap(), gpu::currentBudget(), wanted, "FusedGemm");
    agreeOnForms(*communicator.bootstrap(), std::move(collectives), preferred, cublas, multiprocessors);
    for (std::size_t rows = 0; rows <= layer.maxRows; ++rows) forms_.push_back(choose(rows));
    const auto makeKernels = layer.operands == DataType::BFLOAT16 ? makeGemmKernels<bf16> : makeGemmKernels<f8e4m3>;
    kernels_ = makeKernels(
        communicator, layer, decisive_.sharedBytes,
        [this](std::size_t first, std::size_t last) { return mostRows(GemmForm::Fused, first, last); }, monitor_);
    const std::size_t overlapped = mostRows(GemmForm::Overlapped, 1, layer.maxRows);
    if (overlapped > 0) {
      overlapped_ =
          std::make_unique<OverlappedGather>(communicator, serial_->cublas(), overlapped, layer.depth, monitor_);
    }
    const std::size_t serial = mostRows(GemmForm::Serial, 1, layer.maxRows);
    if (serial > 0) {
      const mscclpp::detail::GroupAgreement agreement(*communicator.bootstrap(), "FusedGemm");
      agreement.runStep("allocate what lies between a GEMM and a collective", [&] {
        serial_->allocate(serial);
        return std::vector<char>();
      });
    } else {
      serial_.reset();
    }
    const std::size_t rows = mostRows(GemmForm::Cutlass, 1, layer.maxRows);
    if (rows > 0) {
      const MakeCutlassGemm makeGemm = findCutlassGemm(layer.collective, ranks_, layer.operands);
      cutlass_ = makeGemm(communicator, place(), decisive_.layer, rows, monitor_);
    }
  }

  void run(const FusedGemmCall& given) const override {
    FusedGemmCall call = sized(given, layer_, rank_, ranks_);
    check();
    if (call.rows == 0) return;
    RmsNormCall norm;
    if (layer_.hasNorm) {
      norm = normOf(call, layer_, rank_, ranks_);
      call.norm = &norm;
    }
    const GemmForm form = this->form(call.rows);
    if (form == GemmForm::Serial) return serial_->run(call);  // its collective has a turn
    CallOrder::Turn turn = share_->begin(call.stream);
    try {
      runAlone(call, form);
    } catch (...) {
      // What has been enqueued nevertheless has its turn, and the first error says more than the next one.
      try {
        turn.end();
      } catch (const std::exception&) {
      }
      throw;
    }
    turn.end();
  }
  GemmForm form(std::size_t rows) const override { return rows < forms_.size() ? forms_[rows] : choose(rows); }
  void check() const override {
    monitor_->check();
    if (serial_) serial_->check();
  }

 private:
  /// What decides on the form of a call.
  struct Decisive {
    std::size_t rates;  ///< index in gemmRates
    GemmLayer layer;
    int blocks;         ///< of the library's kernels
    int cutlassBlocks;  ///< 0: there are no kernels of CUTLASS
    bool hasSerial;
    std::size_t sharedBytes;  ///< the most of a block
    std::optional<GemmForm> preferred;
  };
  static_assert(std::is_trivially_copyable_v<Decisive>);

  /// A call, other than a serial one, in its turn. That of an overlapped one is for its barriers, which need room on
  /// all ranks.
  void runAlone(const FusedGemmCall& call, GemmForm form) const {
    if (form == GemmForm::Overlapped) {
      overlapped_->run(call, planOverlappedGather(place(), decisive_.layer, call.rows).parts);
    } else if (form == GemmForm::Cutlass) {
      cutlass_->run(call, decisive_.cutlassBlocks, share_->start());
    } else {
      const auto isFor = [&](const GemmKernelOfRows& entry) { return call.rows <= entry.mostRows; };
      const GemmKernel& kernel = *std::find_if(kernels_.begin(), kernels_.end(), isFor)->kernel;
      kernel.run(call, decisive_.blocks, share_->start());
    }
  }

  GemmForm choose(std::size_t rows) const {
    return chooseGemm(estimateGemm(place(), decisive_.layer, rows),
                      formsOf(place(), decisive_.layer, rows, decisive_.hasSerial), decisive_.preferred);
  }
  GemmPlace place() const {
    return {ratesFor(gemmRates[decisive_.rates], layer_), decisive_.blocks, decisive_.cutlassBlocks, ranks_};
  }

  /// All ranks take the same form of each call: one that all ranks have, by rank 0's rates and layer, of which other
  /// ranks may have more or fewer columns, and by the fewest blocks of any rank.
  void agreeOnForms(Bootstrap& bootstrap, std::shared_ptr<Collectives> collectives, std::optional<GemmForm> preferred,
                    SharedCublas* cublas, int multiprocessors) {
    const mscclpp::detail::GroupAgreement agreement(bootstrap, "FusedGemm");
    const auto all = agreement.gather("choose between kernels", [&] {
      if (layer_.operands == DataType::FLOAT8_E4M3FN) requireFp8();
      const bool takesSerial = serialGemmAccepts(layer_, static_cast<std::size_t>(ranks_), ranks_);
      if (collectives != nullptr && takesSerial) {
        serial_ = SerialGemm::make(std::move(collectives), layer_, ranks_, cublas);
      }
      const bool hasCutlass = findCutlassGemm(layer_.collective, ranks_, layer_.operands) != nullptr && isHopper() &&
                              cutlassAccepts(layer_);
      return Decisive{gemmRatesOf(gpuBackend().deviceName()),
                      layer_,
                      share_->blocks(),
                      hasCutlass ? cutlassGemmBlocks(share_->blocks(), multiprocessors) : 0,
                      serial_ != nullptr,
                      static_cast<std::size_t>(gpu::attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)),
                      preferred};
    });
    decisive_ = all.front();
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      const Decisive& of = all[rank];
      requireSameLayer(of.layer, static_cast<int>(rank), decisive_.layer);
      decisive_.hasSerial = decisive_.hasSerial && of.hasSerial;
      decisive_.blocks = std::min(decisive_.blocks, of.blocks);
      decisive_.cutlassBlocks = std::min(decisive_.cutlassBlocks, of.cutlassBlocks);
      decisive_.sharedBytes = std::min(decisive_.sharedBytes, of.sharedBytes);
    }
    if (!decisive_.hasSerial) serial_.reset();
    if (!fusedGemmAccepts(layer_) && !decisive_.hasSerial) {
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
  std::shared_ptr<WaitMonitor> monitor_;  ///< of all waits but those of serial_
  std::unique_ptr<GpuBudget::Share> share_;
  std::unique_ptr<SerialGemm> serial_;  ///< null if no call takes it
  Decisive decisive_{};
  std::vector<GemmForm> forms_;                   ///< of calls with 0, 1, ... rows: no call compares them again
  std::vector<GemmKernelOfRows> kernels_;         ///< in increasing order of rows
  std::unique_ptr<GemmKernel> cutlass_;           ///< null if no call takes it
  std::unique_ptr<OverlappedGather> overlapped_;  ///< the same
};

}  // namespace

std::unique_ptr<FusedGemm> gpu::makeFusedGemm(Communicator& communicator, const GemmLayer& layer,
                                              std::shared_ptr<Collectives> collectives,
                                              std::optional<GemmForm> preferred, SharedCublas* cublas) {
  return std::make_unique<GpuFusedGemm>(communicator, layer, std::move(collectives), preferred, cublas);
}

}  // namespace mscclpp::kernels
