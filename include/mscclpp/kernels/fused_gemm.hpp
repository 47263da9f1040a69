// Compiled matrix multiplications of bfloat16 or fp8 with a collective inside.
#pragma once

#include <cstddef>
#include <memory>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/host/base/device.hpp"
#include "mscclpp/kernels/rms_norm_call.hpp"

struct CUstream_st;

namespace mscclpp {

class Collectives;
class Communicator;

/// What a FusedGemm does, on every rank with its own arrays; a product is input * transpose of weight.
enum class GemmCollective {
  AllReduce,      ///< the sum of the products over the ranks, on all ranks
  ReduceScatter,  ///< the same, of which rank r gets rows [r * s, (r + 1) * s), s = the rows by the ranks, rounded up
  AllGather       ///< of the inputs of all ranks, which have such slices of the rows: the product with the own weights
};

/// The most rows of a call.
inline constexpr std::size_t mostFusedGemmRows = std::size_t{1} << 22;

/// The layer that a FusedGemm is for.
struct GemmLayer {
  GemmCollective collective = GemmCollective::AllReduce;
  std::size_t maxRows = 0;  ///< of all ranks, in the longest call; at most mostFusedGemmRows
  std::size_t width = 0;    ///< rows of this rank's weights: columns of the output; with AllGather it may differ
  std::size_t depth = 0;    ///< columns of input and weights; with AllReduce and ReduceScatter it may differ
  /// The most blocks of a kernel, for calls beside others; 0: as many as the GPU has room for. It may differ between
  /// ranks: the fewest count.
  int maxBlocks = 0;
  /// Whether calls have a FusedGemmCall::norm: all of them or none. Not with AllGather. The width is then a multiple of
  /// 16, at most mostRmsNormElements; on GPUs one above mostFusedNormWidth is only that of an all-reduce in
  /// GemmForm::Serial.
  bool hasNorm = false;
  /// Of input and weights: BFLOAT16 or FLOAT8_E4M3FN. The product is accumulated in fp32 (of fp8, where tensor cores
  /// keep fewer bits, in sums of a few instructions, but for GPUs before Hopper), and everything behind it is bfloat16.
  DataType operands = DataType::BFLOAT16;
  /// Of fp8: whether tensor cores may sum up all products of an element, and not 128 before these are added in fp32, as
  /// with use_fast_accum of torch._scaled_mm. That is faster in kernels of CUTLASS and of cuBLAS; the others do not
  /// change. Tensor cores keep fewer bits than fp32 and cut the others off: of operands around zero the error is about
  /// that of the rounding to bfloat16, but of operands of one sign, sums of 8192 products are 13% too small
  /// (docs/fusing.md).
  bool fastAccumulation = false;
};

/// The longest row that kernels for GPUs with a norm and the collective inside have registers for.
inline constexpr std::size_t mostFusedNormWidth = 8192;

/// A call: row-major arrays on the current GPU, or of a CPU rank, at any multiple of their elements' size; fastest at
/// multiples of 16.
struct FusedGemmCall {
  const void* input = nullptr;   ///< rows x depth, of GemmLayer::operands; AllGather: this rank's slice of the rows
  const void* weight = nullptr;  ///< width x depth, of GemmLayer::operands
  void* output = nullptr;        ///< rows x width; ReduceScatter: this rank's slice of the rows
  std::size_t rows = 0;          ///< of all ranks, the same on all of them; with none nothing is enqueued
  CUstream_st* stream = nullptr;
  std::size_t width = 0;  ///< 0: the layer's. With AllGather it may change from call to call
  std::size_t depth = 0;  ///< 0: the layer's. With AllReduce and ReduceScatter it may change from call to call
  /// Of a layer with a norm: what follows the sum of the products, in the steps of AllReduceRmsNorm
  /// (fusion/all_reduce_rms_norm.hpp). Residual and outputs have the rows that `output` would have, which is null;
  /// with a quantisation `normalised` is null too. All ranks pass the same quantisation, and the same scale if there is
  /// one. Its input, rows, hidden, type and stream are those of this call, and are not read.
  const RmsNormCall* norm = nullptr;
  /// Of a layer of fp8: an element of this rank's product is multiplied by the scale of its row of input times that of
  /// its row of weights, before it is rounded to bfloat16 and summed over the ranks. AllGather: the scales of this
  /// rank's slice of the rows, which are gathered with it. Where a tensor has one scale, all elements of the array are
  /// that one.
  const float* inputScales = nullptr;   ///< one for each row of `input`; null in a layer of bfloat16
  const float* weightScales = nullptr;  ///< one for each row of `weight`; null in a layer of bfloat16
};

/// How a call is computed on GPUs.
enum class GemmForm {
  Fused,      ///< by the library's kernels with the collective inside, which take any sizes; also that of CPU ranks
  Cutlass,    ///< by kernels of CUTLASS with the collective inside, where the library is built with them
  Serial,     ///< by a GEMM of cuBLAS and a call of Collectives
  Overlapped  ///< an all-gather by the copy engines beside GEMMs of cuBLAS: of this rank's rows, then of what arrives
};

/// One layer's fused kernels. The kernel is chosen by the number of rows: for few rows, narrow tiles, and an all-reduce
/// in one hop where that is faster. docs/fusing.md says what they do, and which bits they give: the same on all ranks,
/// in every run. On CPU ranks the product is a source of the library's collectives, which run in the calling thread.
///
/// One sequence of calls, which must not overlap in time; all ranks make the same ones. It must outlive them, on all
/// ranks: synchronise before it is destroyed. Calls of other objects, on other streams, may overlap: the kernels share
/// the blocks that fit on the GPU with those of Collectives, and calls of objects for which there is no room at once
/// run one after another. Enqueue calls on several streams in the same order on all ranks.
class FusedGemm {
 public:
  virtual ~FusedGemm() = default;
  FusedGemm(const FusedGemm&) = delete;
  FusedGemm& operator=(const FusedGemm&) = delete;

  /// Enqueues the call, which a graph can capture; on CPU ranks returns when it is done. Throws Error(InvalidUsage) for
  /// more rows than the layer has, for another width or depth where it is the layer's, for arrays that are null or not
  /// aligned to their elements, for a norm that the layer has not or that lacks arrays, for scales that the layer has
  /// not, CudaError, and after a failure that is known, what check() throws. Of the forms:
  /// - Cutlass, and with fp8 also Serial and Overlapped: for arrays that are not at multiples of 16 bytes, and sizes
  ///   that are not multiples of 8, with fp8 of 16, it allocates memory of the stream and copies: a graph of it can
  ///   have one instance at a time.
  /// - Serial: the first call with a norm allocates, as Collectives::allReduceRmsNorm() does: it cannot be captured.
  /// - Overlapped: a call also uses streams of the object: one capture at a time, and no other call while it lasts.
  virtual void run(const FusedGemmCall& call) const = 0;
  /// How a call with so many rows is computed. The same on all ranks.
  virtual GemmForm form(std::size_t rows) const = 0;
  /// After calls have ended: throws what WaitMonitor::check throws if one of their waits failed. Then it is unfit for
  /// use, and so are its other calls.
  virtual void check() const = 0;

 protected:
  FusedGemm() = default;
};

/// Collective: called by all ranks of the communicator, on GPUs each with its own one current, with the same layer.
/// Allocates the scratch of the longest call (docs/fusing.md), on CPU ranks less than a MiB, and on GPUs estimates the
/// times of calls of 1 to maxRows rows. Throws on all ranks: Error(InvalidUsage) if their layers differ, for sizes of 0
/// or above mostFusedGemmRows and 2^31 - 1, for a negative maxBlocks, for operands of other types, for bfloat16 with
/// fastAccumulation, for a norm of an all-gather or of rows of a width that GemmLayer::hasNorm does not allow, for
/// `collectives` of another kind of device or of other ranks, and for GPUs in a build without CUDA; Error(RemoteError)
/// where only another rank's layer is wrong.
///
/// Kernels of CUTLASS are those of the build option cutlass_gemms: for GPUs of compute capability 9.0 and layers whose
/// width and depth are multiples of 8 on all ranks, with fp8 the depth of 16. They run where a model estimates that to
/// be the fastest. Operands of fp8 need a GPU of compute capability 8.9 or newer, and cuBLAS multiplies them from CUDA
/// 12.9 on, on Hopper.
///
/// collectives: of the same communicator and kind of device, if given on all ranks, and if all of them find cuBLAS:
/// then a call on GPUs runs as a GEMM of cuBLAS and a collective, or copies, where a model estimates that to be faster
/// (docs/fusing.md). The order of calls with a collective is that of the other calls of `collectives`. The bits of a
/// call depend on which form it takes, and so on its number of rows; with copies (GemmForm::Overlapped) those of a row
/// also on where it is among the rows.
std::unique_ptr<FusedGemm> makeFusedGemm(Communicator& communicator, const GemmLayer& layer,
                                         DeviceType deviceType = DeviceType::GPU,
                                         std::shared_ptr<Collectives> collectives = nullptr);

}  // namespace mscclpp
