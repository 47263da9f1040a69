// 17: a stock kernel of CUTLASS made into one whose output is summed over the ranks while it is computed, with the
// residual and an RMSNorm between the sum and its delivery: the output projection of a tensor-parallel layer.
//
// It needs two Hopper GPUs and CUTLASS 4, which Meson finds in the Python environment (`pip install
// nvidia-cutlass==4.2.0.0`) or in -Dcutlass_dir. Compile with -DNDEBUG: with assertions in its kernels, ptxas
// serialises the tensor core instructions. docs/cutlass.md explains it line by line.
#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>

#include <cmath>
#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "gpu_example.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/fusion/cutlass/gemm_row_exchange.cuh"
#include "mscclpp/fusion/gemm/norm_rows.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"

using namespace mscclpp;

namespace {

// ---- the stock kernel ----

using cutlass::layout::ColumnMajor;
using cutlass::layout::RowMajor;
using Element = cutlass::bfloat16_t;
using TileShape = cute::Shape<cute::_128, cute::_128, cute::_64>;
using ClusterShape = cute::Shape<cute::_1, cute::_2, cute::_1>;
using Epilogue =
    cutlass::epilogue::collective::CollectiveBuilder<cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape,
                                                     ClusterShape, cutlass::epilogue::collective::EpilogueTileAuto,
                                                     float, float, void, RowMajor, 8, Element, RowMajor, 8,
                                                     cutlass::epilogue::TmaWarpSpecialized>::CollectiveOp;
using Mainloop = cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, RowMajor, 8, Element, ColumnMajor, 8, float,
    TileShape, ClusterShape,
    cutlass::gemm::collective::StageCountAutoCarveout<sizeof(typename Epilogue::SharedStorage)>,
    cutlass::gemm::KernelTmaWarpSpecializedPingpong>::CollectiveOp;
using Stock = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue>;

// ---- the fused one ----

constexpr int ranks = 2;
constexpr int maxWidth = 2048;
// Residual and RMSNorm need whole rows: 8 packs of 8 elements in each of 32 lanes.
using Fused = GemmRowExchange<Stock, ranks, RowDelivery::ToAll, NormRows<bf16>, maxWidth / (32 * packSize<bf16>)>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Fused>;

// ---- a layer ----

struct Layer {
  int tokens = 300, width = 2048, depth = 264;

  /// Multiples of 1/8 in [-1, 1].
  static std::vector<bf16> values(int count, int seed) {
    std::vector<bf16> result;
    for (int i = 0; i < count; ++i) {
      result.push_back(narrow<bf16>(static_cast<float>((i * 37 + seed * 11) % 17) / 8.0f - 1.0f));
    }
    return result;
  }
  std::vector<bf16> input(int rank) const { return values(tokens * depth, 100 + rank); }
  std::vector<bf16> weight(int rank) const { return values(width * depth, 200 + rank); }
  std::vector<bf16> residual() const { return values(tokens * width, 1); }

  /// Throws unless the norm is that of the layer in double precision, of every seventh row: each rank's part is rounded
  /// to bfloat16 once, the sum once, the hidden state once, and the norm once.
  void check(const std::vector<bf16>& normalised) const {
    const auto added = residual();
    for (int t = 0; t < tokens; t += 7) {
      std::vector<double> row(static_cast<std::size_t>(width));
      double squares = 0, largestPart = 0;
      for (int j = 0; j < width; ++j) {
        double& sum = row[static_cast<std::size_t>(j)];
        for (int rank = 0; rank < ranks; ++rank) {
          static const std::vector<bf16> inputs[] = {input(0), input(1)}, weights[] = {weight(0), weight(1)};
          double part = 0;
          for (int k = 0; k < depth; ++k) {
            part += double{widen<bf16>(inputs[rank][static_cast<std::size_t>(t * depth + k)])} *
                    widen<bf16>(weights[rank][static_cast<std::size_t>(j * depth + k)]);
          }
          sum += part;
          largestPart = std::fmax(largestPart, std::fabs(part));
        }
        sum += widen<bf16>(added[static_cast<std::size_t>(t * width + j)]);
        squares += sum * sum;
      }
      const double scale = 1.0 / std::sqrt(squares / width + 1e-6);
      for (int j = 0; j < width; ++j) {
        const double expected = row[static_cast<std::size_t>(j)] * scale;
        const double got = widen<bf16>(normalised[static_cast<std::size_t>(t * width + j)]);
        example::require(
            std::fabs(got - expected) <= (ranks + 3) * largestPart * scale / 256 + std::fabs(expected) / 64,
            "token " + std::to_string(t) + ", element " + std::to_string(j) + " is " + std::to_string(got) +
                " instead of " + std::to_string(expected));
      }
    }
  }
};

GpuBuffer<bf16> copyToGpu(const std::vector<bf16>& values) {
  GpuBuffer<bf16> buffer(values.size());
  gpuMemcpy(buffer.data(), values.data(), values.size());
  return buffer;
}

void require(cutlass::Status status) {
  example::require(status == cutlass::Status::kSuccess, cutlassGetStatusString(status));
}

void runLayer(ProcessGroup& group) {
  const int rank = group.rank();
  const Layer layer;
  Communicator communicator(group.connect());
  WaitMonitor monitor(communicator, DeviceType::GPU);

  // The state of the exchange: scratch on all ranks, epochs that advance on the device.
  const auto layout = Fused::scratchFor(static_cast<std::size_t>(layer.tokens), static_cast<std::size_t>(layer.width));
  const SymmetricMemory scratch(communicator, layout.windowBytes(), DeviceType::GPU);
  const GpuBuffer<std::uint64_t> epochs(epochWords);
  gpuMemcpy(epochs.data(), std::vector<std::uint64_t>(epochWords, Fused::Scratch::firstEpoch).data(), epochWords);

  const auto input = copyToGpu(layer.input(rank)), weight = copyToGpu(layer.weight(rank)),
             residual = copyToGpu(layer.residual()),
             gain = copyToGpu(std::vector<bf16>(static_cast<std::size_t>(layer.width), narrow<bf16>(1.0f)));
  const GpuBuffer<bf16> hidden(residual.nelems()), normalised(residual.nelems());

  Gemm::Arguments arguments{};
  arguments.mode = cutlass::gemm::GemmUniversalMode::kGemm;
  arguments.problem_shape = {layer.tokens, layer.width, layer.depth, 1};
  arguments.mainloop = {reinterpret_cast<const Element*>(input.data()),
                        {layer.depth, cute::Int<1>{}, 0},
                        reinterpret_cast<const Element*>(weight.data()),
                        {layer.depth, cute::Int<1>{}, 0}};
  arguments.epilogue.thread.alpha = 1.0f;
  // In place of the output of the stock kernel:
  arguments.epilogue.exchange = {.team = {rank, ranks},
                                 .window = scratch.window<ranks>(),
                                 .epochs = {epochs.data()},
                                 .scratch = layout,
                                 .count = static_cast<std::size_t>(layer.tokens),
                                 .wait = {monitor.deviceControl(), 30'000'000'000}};
  RmsNormArrays<bf16> arrays{};
  arrays.weight = gain.data();
  arrays.epsilon = 1e-6f;
  arrays.residual = residual.data();
  arrays.newResidual = hidden.data();
  arrays.normalised = normalised.data();
  arguments.epilogue.result = {static_cast<std::size_t>(layer.width), arrays};
  Gemm gemm;
  require(Gemm::can_implement(arguments));
  require(gemm.initialize(arguments));

  for (int call = 0; call < 3; ++call) {
    gpuMemset(normalised.data(), 0, normalised.bytes());
    require(gemm.run());
    MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
    monitor.check();
    std::vector<bf16> result(normalised.nelems());
    gpuMemcpy(result.data(), normalised.data(), result.size());
    layer.check(result);
    example::requireSameBits(*communicator.bootstrap(), result);
  }
  if (rank == 0) std::printf("a GEMM of CUTLASS, all-reduce, residual and RMSNorm over %d GPUs: right\n", ranks);
  communicator.bootstrap()->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnGpus(ranks, ranks, argc, argv, runLayer);
}
