// GEMMs with a collective inside on a CPU, in the calling thread: the product is the source of a collective, or of its
// result, and a norm follows.
#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "host/bootstrap/group_agreement.hpp"
#include "kernels/gemm/fused_gemm.hpp"
#include "kernels/rms_norm.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/basic/source_sink.hpp"
#include "mscclpp/collective/all_gather.hpp"
#include "mscclpp/collective/all_reduce.hpp"
#include "mscclpp/collective/reduce_scatter.hpp"
#include "mscclpp/fusion/row_norm.hpp"
#include "mscclpp/host/communicator/collective_state.hpp"
#include "mscclpp/host/communicator/communicator.hpp"

namespace mscclpp::kernels {

namespace {

using SumOfAll = AllReduce<bf16, Sum, AllReduceConfig{.protocol = Protocol::Simple, .pattern = Pattern::TwoShot}>;
using SumOfSlice = ReduceScatter<bf16, Sum, CollectiveConfig{.protocol = Protocol::Simple}>;
using Gather = AllGather<std::uint8_t, CollectiveConfig{.protocol = Protocol::Simple}>;  // of the bytes of any type

/// Converts an operand to fp32; exact.
template <class T>
struct OperandValues {
  float operator()(T operand) const { return widen<T>(operand); }
};
/// By a table: the conversion of the CUDA toolkit takes 15 times as long on a CPU.
template <>
struct OperandValues<f8e4m3> {
  OperandValues() {
    for (unsigned bits = 0; bits < 256; ++bits) {
      values_[bits] = widen<f8e4m3>(arch::bitCast<f8e4m3>(static_cast<std::uint8_t>(bits)));
    }
  }
  float operator()(f8e4m3 operand) const { return values_[arch::bitCast<std::uint8_t>(operand)]; }

 private:
  float values_[256];
};

/// input * transpose of weight, of elements T, row by row; what is beyond its last row is 0. Each element is
/// accumulated in fp32, in an order that depends on the depth alone; with scales it is multiplied by the fp32 product
/// of that of its row and that of its column: sum * (input scale * weight scale); and it is rounded.
template <class T>
class Product {
 public:
  Product(const T* input, std::size_t rows, const FusedGemmCall& call)
      : input_(input),
        weight_(static_cast<const T*>(call.weight)),
        inputScales_(call.inputScales),
        weightScales_(call.weightScales),
        rows_(rows),
        width_(call.width),
        depth_(call.depth) {}

  Pack<bf16> operator()(std::size_t first, int valid) const {
    Pack<bf16> pack = fromWord<bf16>(Word128{0, 0});
    std::size_t row = first / width_, column = first % width_;
    for (int i = 0; i < valid && row < rows_; ++i) {
      pack[i] = narrow<bf16>(element(row, column));
      if (++column == width_) {
        column = 0;
        ++row;
      }
    }
    return pack;
  }

 private:
  float element(std::size_t row, std::size_t column) const {
    const float sum = dot(input_ + row * depth_, weight_ + column * depth_);
    if constexpr (std::is_same_v<T, f8e4m3>) return sum * (inputScales_[row] * weightScales_[column]);
    return sum;
  }
  float dot(const T* a, const T* b) const {
    static const OperandValues<T> valueOf{};
    constexpr std::size_t lanes = 16;  // for the compiler's vectors
    float sums[lanes] = {};
    std::size_t k = 0;
    for (; k + lanes <= depth_; k += lanes) {
      for (std::size_t i = 0; i < lanes; ++i) sums[i] += valueOf(a[k + i]) * valueOf(b[k + i]);
    }
    for (std::size_t i = 0; k < depth_; ++i, ++k) sums[i] += valueOf(a[k]) * valueOf(b[k]);
    float sum = 0.0f;
    for (const float each : sums) sum += each;
    return sum;
  }

  const T* input_;
  const T* weight_;
  const float* inputScales_;   ///< of its rows: fp8 has them
  const float* weightScales_;  ///< of its columns
  std::size_t rows_, width_, depth_;
};

/// Elements of a slice of `columns` columns, but for the last ranks, whose slices are shorter.
std::size_t sliceCount(const FusedGemmCall& call, int ranks, std::size_t columns) {
  return ceilDivide(call.rows, static_cast<std::size_t>(ranks)) * columns;
}

// A call without a norm; T: the type of the operands.

template <class T>
void run(const CollectiveState<SumOfAll>& state, const FusedGemmCall& call) {
  SumOfAll::run(mscclpp::cpu::SerialGrid(), state.args(call.rows * call.width),
                Product<T>(static_cast<const T*>(call.input), call.rows, call),
                ArraySink<bf16>(static_cast<bf16*>(call.output)));
}

template <class T>
void run(const CollectiveState<SumOfSlice>& state, const FusedGemmCall& call) {
  const Team<> team = state.args(0).team;
  const std::size_t present = sliceOf(call, team.rank(), team.size()).size() * call.width;
  const ArraySink<bf16> output(static_cast<bf16*>(call.output));
  const auto sink = [&](std::size_t first, const Pack<bf16>& pack, int valid) {
    if (first < present) output(first, pack, static_cast<int>(std::min<std::size_t>(valid, present - first)));
  };
  SumOfSlice::run(mscclpp::cpu::SerialGrid(), state.args(sliceCount(call, team.size(), call.width)),
                  Product<T>(static_cast<const T*>(call.input), call.rows, call), sink);
}

/// The elements of the rows of all ranks, of which this rank has its slice: so many in each row.
template <class T>
std::vector<T> gatherRows(const CollectiveState<Gather>& state, const FusedGemmCall& call, const T* slice,
                          std::size_t columns) {
  const Team<> team = state.args(0).team;
  const std::size_t presentBytes = sliceOf(call, team.rank(), team.size()).size() * columns * sizeof(T);
  const std::size_t count = sliceCount(call, team.size(), columns);
  const ArraySource<std::uint8_t> input(reinterpret_cast<const std::uint8_t*>(slice));
  const auto source = [&](std::size_t first, int valid) {
    // A rank without rows may have no input.
    if (first >= presentBytes) return fromWord<std::uint8_t>(Word128{0, 0});
    return input(first, static_cast<int>(std::min<std::size_t>(valid, presentBytes - first)));
  };
  std::vector<T> gathered(count * static_cast<std::size_t>(team.size()));
  Gather::run(mscclpp::cpu::SerialGrid(), state.args(count * sizeof(T)), source,
              ArraySink<std::uint8_t>(reinterpret_cast<std::uint8_t*>(gathered.data())));
  return gathered;
}

template <class T>
void run(const CollectiveState<Gather>& state, FusedGemmCall call) {
  const std::vector<T> input = gatherRows(state, call, static_cast<const T*>(call.input), call.depth);
  std::vector<float> scales;
  if constexpr (std::is_same_v<T, f8e4m3>) scales = gatherRows(state, call, call.inputScales, 1);
  call.inputScales = scales.data();
  const Product<T> product(input.data(), call.rows, call);
  const ArraySink<bf16> output(static_cast<bf16*>(call.output));
  const std::size_t results = call.rows * call.width;
  for (std::size_t first = 0; first < results; first += packSize<bf16>) {
    const int valid = static_cast<int>(std::min<std::size_t>(packSize<bf16>, results - first));
    output(first, product(first, valid), valid);
  }
}

/// The norm of the rows of call.input.
void normalise(const RmsNormCall& call) {
  constexpr int mostPacks = static_cast<int>(mostRmsNormElements / packSize<bf16>);
  const auto rowPacks = static_cast<std::uint32_t>(call.hidden / packSize<bf16>);
  const auto arrays = arraysOf<bf16>(call);
  const RowNorm<bf16, mostPacks> rowNorm{arrays, rowPacks};
  const mscclpp::cpu::SerialGrid grid;
  RowThreads<mostPacks, mscclpp::cpu::SerialGrid> threads(grid, rowPacks);
  const Word128 weights[mostPacks] = {};  // of rows as long as these are loaded where they are used
  Word128 packs[mostPacks] = {};
  for (std::size_t row = 0; row < call.rows; ++row) {
    rowNorm.forEachPack(threads, [&](int i, std::uint32_t pack) {
      const std::size_t first = row * call.hidden + pack * static_cast<std::size_t>(packSize<bf16>);
      packs[i] = arch::loadWide(static_cast<const bf16*>(call.input) + first);
      if (arrays.residual == nullptr) return;
      const auto residual = fromWord<bf16>(arch::loadWide(arrays.residual + first));
      packs[i] = toWord<bf16>(norm::addResidual<bf16>(fromWord<bf16>(packs[i]), residual));
    });
    const auto apply = [&]<Quantisation quantisation>() {
      rowNorm.template apply<quantisation>(threads, static_cast<std::uint32_t>(row), true, packs, weights);
      return 0;
    };
    if (call.quantisation == Quantisation::None) {
      apply.template operator()<Quantisation::None>();
    } else {
      visitQuantisation(call.quantisation, apply);
    }
  }
}

/// The calls of a collective C with operands T. maxCount: the collective's elements in the longest one.
template <class C, class T>
class CpuFusedGemm : public FusedGemm {
 public:
  CpuFusedGemm(Communicator& communicator, const GemmLayer& layer, std::size_t maxCount)
      : layer_(layer), state_(communicator, DeviceType::CPU, maxCount) {}

  void run(const FusedGemmCall& given) const override {
    const Team<> team = state_.args(0).team;
    FusedGemmCall call = sized(given, layer_, team.rank(), team.size());
    check();
    if (call.rows == 0) return;
    if (!layer_.hasNorm) {
      kernels::run<T>(state_, call);
      return check();
    }
    RmsNormCall norm = normOf(call, layer_, team.rank(), team.size());
    std::vector<bf16> sums(norm.rows * norm.hidden);
    call.output = sums.data();
    kernels::run<T>(state_, call);
    check();
    norm.input = sums.data();
    normalise(norm);
  }
  GemmForm form(std::size_t) const override { return GemmForm::Fused; }
  void check() const override { state_.check(); }

 private:
  GemmLayer layer_;
  CollectiveState<C> state_;
};

/// T: the type of the layer's operands.
template <class T>
std::unique_ptr<FusedGemm> makeGemmOf(Communicator& communicator, const GemmLayer& layer) {
  switch (layer.collective) {
    case GemmCollective::AllReduce:
      return std::make_unique<CpuFusedGemm<SumOfAll, T>>(communicator, layer, layer.maxRows * layer.width);
    case GemmCollective::ReduceScatter:
      return std::make_unique<CpuFusedGemm<SumOfSlice, T>>(communicator, layer, layer.maxRows * layer.width);
    default:
      return std::make_unique<CpuFusedGemm<Gather, T>>(
          communicator, layer, layer.maxRows * std::max(layer.depth * sizeof(T), sizeof(float)));
  }
}

}  // namespace

std::unique_ptr<FusedGemm> cpu::makeFusedGemm(Communicator& communicator, const GemmLayer& layer) {
  const mscclpp::detail::GroupAgreement agreement(*communicator.bootstrap(), "FusedGemm");
  const auto all = agreement.gather("state its layer", [&] { return layer; });
  for (std::size_t rank = 0; rank < all.size(); ++rank) requireSameLayer(all[rank], static_cast<int>(rank), all[0]);
  return layer.operands == DataType::BFLOAT16 ? makeGemmOf<bf16>(communicator, layer)
                                              : makeGemmOf<f8e4m3>(communicator, layer);
}

}  // namespace mscclpp::kernels
