// GEMMs of bf16 or fp8 with communication inside, beside cuBLAS followed or preceded by a collective, the library's and
// NCCL's, and beside the GEMM alone; and the form that the library chooses. One process per GPU; shapes of language
// models. With one rank, the GEMMs without communication.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend.hpp"
#include "bench/fusion/random_rows.hpp"
#include "bench/json_line.hpp"
#include "gpu_main.hpp"
#include "kernels/gemm/cublas.hpp"
#include "kernels/gemm/fused_gemm.hpp"
#include "median.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/launch/process_group.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "mscclpp/kernels/fused_gemm.hpp"
#include "nccl.hpp"
#include "rank_group.hpp"
#include "tools/command_line/command_line.hpp"

namespace mscclpp::fusionbench {

namespace {

constexpr std::size_t elementBytes = 2;  // of results, bf16

struct Model {
  const char* name;
  std::size_t hidden, inner, queries, keysAndValues;  ///< elements of a token, over all ranks
};
constexpr Model models[] = {{"llama-70b", 8192, 28672, 8192, 2048},
                            {"llama-405b", 16384, 53248, 16384, 2048},
                            {"qwen3-32b", 5120, 25600, 8192, 2048}};

struct Options {
  int ranks = 0;
  int split = 0;
  std::vector<int> rows{1, 16, 64, 256, 2048, 8192};
  std::string model, layer;
  bool fp8 = false, fast = false, nccl = false;
  std::string ncclLibrary, cublasLibrary;
  bool json = false;
  perf::TimingOptions timing{5, 10, 7};
};

/// Returns the exit code if the program ends here.
std::optional<int> parse(int argc, char** argv, Options& options) {
  cli::CommandLine commandLine("Times GEMMs with communication inside, and with separate collectives.");
  commandLine.add("-n,--ranks", options.ranks, "GPUs; default: all").range(1, 64);
  commandLine.add("--split", options.split, "ranks by which the layers' sizes are divided; default: the GPUs")
      .range(1, 64);
  commandLine.add("--rows", options.rows, "tokens, such as 1,64,8192").range(1, 1 << 16);
  commandLine.add("--model", options.model, "llama-70b, llama-405b or qwen3-32b; default: all");
  commandLine.add("--layer", options.layer, "only layers whose names contain this, such as RS; default: all");
  commandLine.add("--calls", options.timing.calls, "calls per measurement, in one graph").range(1, 10'000);
  commandLine.add("--repeats", options.timing.repeats, "number of measurements; their median is reported")
      .range(1, 10'000);
  commandLine.addFlag("--fp8", options.fp8, "operands of fp8 (e4m3) with scales of rows, instead of bf16");
  commandLine.addFlag("--fast", options.fast, "sums of fp8 with fewer bits: GemmLayer::fastAccumulation");
  commandLine.addFlag("--nccl", options.nccl, "also measure cuBLAS with NCCL's collective");
  commandLine.add("--nccl-library", options.ncclLibrary, "path of NCCL; default: libnccl.so.2 as the loader finds it");
  commandLine.add("--cublas-library", options.cublasLibrary, "path of cuBLAS; default: as the loader finds it");
  commandLine.addFlag("--json", options.json, "print one line of JSON per measurement instead of the table");
  if (const auto exitCode = commandLine.parse(argc, argv)) return exitCode;
  if (options.fast && !options.fp8) return commandLine.reject("--fast", "is for --fp8");
  const auto isModel = [&](const Model& model) { return options.model == model.name; };
  if (!options.model.empty() && std::none_of(std::begin(models), std::end(models), isModel)) {
    return commandLine.reject("--model", "is none of those that are measured");
  }
  return std::nullopt;
}

struct Layer {
  std::string name;
  GemmCollective collective;
  std::size_t width, depth;
};

/// The layers of a rank with all-reduces, and those with sequence parallelism.
std::vector<Layer> layersOf(const Model& model, std::size_t split) {
  const auto named = [&](const char* what) { return fmt::format("{} {}", model.name, what); };
  using enum GemmCollective;
  return {{named("attention output, AR"), AllReduce, model.hidden, model.queries / split},
          {named("down, AR"), AllReduce, model.hidden, model.inner / split},
          {named("attention output, RS"), ReduceScatter, model.hidden, model.queries / split},
          {named("down, RS"), ReduceScatter, model.hidden, model.inner / split},
          {named("qkv, AG"), AllGather, (model.queries + model.keysAndValues) / split, model.hidden},
          {named("gate and up, AG"), AllGather, 2 * model.inner / split, model.hidden}};
}

float valueOf(std::uint16_t bits) {
  const std::uint32_t word = std::uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

class Bench {
 public:
  Bench(const Options& options, ProcessGroup& group)
      : options_(options),
        backend_(perf::makeGpuBackend(group.localRank())),
        bootstrap_(group.connect()),
        communicator_(std::make_shared<Communicator>(bootstrap_)),
        collectives_(std::make_shared<Collectives>(communicator_, DeviceType::GPU)),
        operands_(options.fp8 ? DataType::FLOAT8_E4M3FN : DataType::BFLOAT16),
        cublas_(options.cublasLibrary, operands_, options.fast) {
    if (options.nccl) nccl_ = std::make_unique<perf::Nccl>(options.ncclLibrary, *bootstrap_);
    auto own = std::make_shared<TcpBootstrap>(0, 1);
    own->initialize(TcpBootstrap::createUniqueId());
    alone_ = std::make_unique<Communicator>(own);
  }

  void run() {
    if (rank() == 0 && !options_.json) {
      fmt::print("# {} GPUs, {}; {}; {}{} calls in a graph, median of {}, maximum over the ranks; us per call\n",
                 ranks(),
                 options_.fast  ? "fp8 with scales, fast accumulation"
                 : options_.fp8 ? "fp8 with scales"
                                : "bf16",
                 backend_->description(), nccl_ ? "NCCL " + nccl_->version() + "; " : "", options_.timing.calls,
                 options_.timing.repeats);
      fmt::print("# {:<32} {:>6} {:>6} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>8} {:>5}\n",
                 "layer", "rows", "width", "depth", "cuBLAS", "own GEMM", "fused", "CUTLASS", "serial", "overlap",
                 "NCCL", "chosen", "form", "speedup", "right");
    }
    const std::size_t split = options_.split > 0 ? static_cast<std::size_t>(options_.split) : ranks();
    for (const Model& model : models) {
      if (!options_.model.empty() && options_.model != model.name) continue;
      for (const Layer& layer : layersOf(model, split)) {
        if (layer.name.find(options_.layer) != std::string::npos) measureLayer(layer);
      }
    }
    collectives_->check();
    bootstrap_->barrier();
    if (isWrong_) throw Error("the outputs of the implementations differ", ErrorCode::InternalError);
  }

 private:
  int rank() const { return bootstrap_->getRank(); }
  std::size_t ranks() const { return static_cast<std::size_t>(bootstrap_->getNranks()); }

  void measureLayer(const Layer& layer) {
    const bool gathers = layer.collective == GemmCollective::AllGather;
    const auto maxRows = static_cast<std::size_t>(*std::max_element(options_.rows.begin(), options_.rows.end()));
    const auto seed = static_cast<std::uint32_t>(rank());
    const auto input = randomRows(*backend_, maxRows * layer.depth, seed + 100, operands_);
    const auto weight = randomRows(*backend_, layer.width * layer.depth, seed + 200, operands_);
    const auto rowScales = randomScales(*backend_, maxRows, seed + 300);
    const auto columnScales = randomScales(*backend_, layer.width, seed + 400);
    const kernels::Cublas::Scales scales = options_.fp8
                                               ? kernels::Cublas::Scales{static_cast<const float*>(rowScales.get()),
                                                                         static_cast<const float*>(columnScales.get())}
                                               : kernels::Cublas::Scales{};
    const auto gathered = backend_->allocate(gathers ? maxRows * layer.depth * sizeOf(operands_) : 16);
    const auto gatheredScales = backend_->allocate(maxRows * sizeof(float));
    const auto product = backend_->allocate(maxRows * layer.width * elementBytes);
    const auto output = backend_->allocate(maxRows * layer.width * elementBytes);
    GemmLayer sizes{layer.collective, maxRows, layer.width, layer.depth};
    sizes.operands = operands_;
    sizes.fastAccumulation = options_.fast;
    GemmLayer withoutCommunication = sizes;
    withoutCommunication.collective = GemmCollective::AllGather;
    const auto make = [&](GemmForm form) { return kernels::gpu::makeFusedGemm(*communicator_, sizes, nullptr, form); };
    const auto fused = make(GemmForm::Fused), cutlass = make(GemmForm::Cutlass);
    const auto overlapped = kernels::gpu::makeFusedGemm(*communicator_, sizes, collectives_, GemmForm::Overlapped);
    const auto chosen = makeFusedGemm(*communicator_, sizes, DeviceType::GPU, collectives_);
    const auto gemm = kernels::gpu::makeFusedGemm(*alone_, withoutCommunication, nullptr, GemmForm::Fused);
    for (const int rowCount : options_.rows) {
      const auto rows = static_cast<std::size_t>(rowCount);
      // The collectives of the serial form have equal parts.
      if (layer.collective != GemmCollective::AllReduce && rows % ranks() != 0) continue;
      const auto multiply = [&](const void* from, void* to, cudaStream_t stream, const void* scalesOfRows) {
        cublas_.multiply(from, weight.get(), to, rows, layer.width, layer.depth, stream,
                         {options_.fp8 ? static_cast<const float*>(scalesOfRows) : nullptr, scales.weight});
      };
      const auto serial = [&](const auto& runCollectives) {
        return [&, runCollectives](cudaStream_t stream) {
          CollectiveCall call{.collective = CollectiveType::AllReduce, .input = product.get(), .output = output.get()};
          call.type = DataType::BFLOAT16;
          call.stream = stream;
          if (gathers) {
            call.collective = CollectiveType::AllGather;
            call.input = input.get();
            call.output = gathered.get();
            call.type = operands_;
            call.count = rows / ranks() * layer.depth;
            std::vector<CollectiveCall> both{call};
            if (options_.fp8) {
              call.input = rowScales.get();
              call.output = gatheredScales.get();
              call.type = DataType::FLOAT32;
              call.count = rows / ranks();
              both.push_back(call);
            }
            runCollectives(both);
            multiply(gathered.get(), output.get(), stream, gatheredScales.get());
          } else {
            multiply(input.get(), product.get(), stream, rowScales.get());
            call.count = rows * layer.width;
            if (layer.collective == GemmCollective::ReduceScatter) {
              call.collective = CollectiveType::ReduceScatter;
              call.count /= ranks();
            }
            runCollectives(std::span(&call, 1));
          }
        };
      };
      const std::size_t results =
          (layer.collective == GemmCollective::ReduceScatter ? rows / ranks() : rows) * layer.width;
      const auto fusedBy = [&](const FusedGemm& gemms, const void* from, void* to) {
        return [&, from, to](cudaStream_t stream) {
          FusedGemmCall call{from, weight.get(), to, rows, stream};
          call.inputScales = scales.input;
          call.weightScales = scales.weight;
          gemms.run(call);
        };
      };
      std::vector<perf::Call> calls(implementationCount);
      calls[Serial] = serial([&](std::span<const CollectiveCall> several) {
        for (const CollectiveCall& call : several) collectives_->run(call);
      });
      calls[Fused] = fusedBy(*fused, input.get(), output.get());
      if (cutlass->form(rows) == GemmForm::Cutlass) calls[Cutlass] = fusedBy(*cutlass, input.get(), output.get());
      if (overlapped->form(rows) == GemmForm::Overlapped)
        calls[Overlapped] = fusedBy(*overlapped, input.get(), output.get());
      calls[Chosen] = fusedBy(*chosen, input.get(), output.get());
      if (nccl_) calls[Nccl] = serial([&](std::span<const CollectiveCall> several) { nccl_->run(several); });
      const void* whole = gathers ? gathered.get() : input.get();
      calls[CublasAlone] = [&](cudaStream_t stream) { multiply(whole, product.get(), stream, rowScales.get()); };
      calls[OwnAlone] = fusedBy(*gemm, whole, product.get());
      const bool isRight = areRight({calls.begin(), calls.begin() + CublasAlone}, output.get(), results) &&
                           areRight({calls.begin() + CublasAlone, calls.end()}, product.get(), rows * layer.width);
      isWrong_ = isWrong_ || !isRight;
      const Times times = time(calls);
      if (rank() == 0) report(layer, rows, times, chosen->form(rows), isRight);
    }
    fused->check();
    cutlass->check();
    overlapped->check();
    chosen->check();
    gemm->check();
    bootstrap_->barrier();
  }

  /// What is measured: first those that communicate, whose output is the serial form's, then those that do not.
  enum Implementation { Serial, Fused, Cutlass, Overlapped, Chosen, Nccl, CublasAlone, OwnAlone, implementationCount };
  using Times = std::array<double, implementationCount>;  ///< us; 0: not measured

  void report(const Layer& layer, std::size_t rows, const Times& times, GemmForm chosen, bool isRight) const {
    const double baseline = times[Nccl] > 0 ? std::min(times[Serial], times[Nccl]) : times[Serial];
    const char* const forms[] = {"fused", "CUTLASS", "serial", "overlap"};
    const char* const form = forms[static_cast<int>(chosen)];
    const auto orNone = [](double us) { return us > 0 ? fmt::format("{:.2f}", us) : std::string("-"); };
    if (options_.json) {
      fmt::print("{}\n", bench::JsonLine()
                             .add("layer", layer.name)
                             .add("operands", std::string(options_.fp8 ? "fp8" : "bf16"))
                             .add("ranks", std::uint64_t{ranks()})
                             .add("rows", std::uint64_t{rows})
                             .add("width", std::uint64_t{layer.width})
                             .add("depth", std::uint64_t{layer.depth})
                             .add("cublas_us", times[CublasAlone])
                             .add("own_gemm_us", times[OwnAlone])
                             .add("fused_us", times[Fused])
                             .add("cutlass_us", times[Cutlass])
                             .add("serial_us", times[Serial])
                             .add("overlapped_us", times[Overlapped])
                             .add("nccl_us", times[Nccl])
                             .add("chosen_us", times[Chosen])
                             .add("chosen", std::string(form))
                             .add("speedup", baseline / times[Chosen])
                             .add("right", isRight)
                             .text());
    } else {
      fmt::print(
          "{:<34} {:>6} {:>6} {:>6} {:>9.2f} {:>9.2f} {:>9.2f} {:>9} {:>9.2f} {:>9} {:>9} {:>9.2f} {:>7} {:>8.2f} "
          "{:>5}\n",
          layer.name, rows, layer.width, layer.depth, times[CublasAlone], times[OwnAlone], times[Fused],
          orNone(times[Cutlass]), times[Serial], orNone(times[Overlapped]), orNone(times[Nccl]), times[Chosen], form,
          baseline / times[Chosen], isRight ? "yes" : "NO");
    }
    std::fflush(stdout);
  }

  /// Whether the outputs of the calls, the first 16 Mi elements, are on all ranks those of the first one.
  bool areRight(const std::vector<perf::Call>& calls, void* output, std::size_t count) {
    count = std::min(count, std::size_t{16} << 20);
    std::vector<std::uint16_t> expected, results(count);
    bool isRight = true;
    float bound = 0;
    for (const perf::Call& call : calls) {
      if (!call) continue;
      backend_->fill(output, 0xff, count * elementBytes);  // NaN
      bootstrap_->barrier();
      backend_->runOnce(call);
      backend_->download(results.data(), output, count * elementBytes);
      if (expected.empty()) {
        expected = results;
        for (const auto value : expected) bound = std::fmax(bound, std::fabs(valueOf(value)));
        // Each rank's product and the sum are rounded, and the additions of a product have another order.
        bound *= static_cast<float>(ranks() + 2) / 256;
      }
      for (std::size_t i = 0; i < count; ++i) {
        isRight = isRight && std::fabs(valueOf(results[i]) - valueOf(expected[i])) <= bound;
      }
    }
    const auto all = perf::RankGroup(*bootstrap_).gather(static_cast<int>(isRight));
    return std::all_of(all.begin(), all.end(), [](int of) { return of != 0; });
  }
  /// The calls are measured in turns: a GPU at its limit of power changes its clock within milliseconds, by a tenth,
  /// and calls that are measured one after the other would have different ones.
  Times time(const std::vector<perf::Call>& calls) {
    std::vector<std::unique_ptr<perf::TimedCall>> timed;
    for (const perf::Call& call : calls) timed.push_back(call ? backend_->prepare(call, options_.timing) : nullptr);
    std::array<std::vector<double>, implementationCount> microseconds;
    for (int repeat = 0; repeat < options_.timing.repeats; ++repeat) {
      for (std::size_t i = 0; i < timed.size(); ++i) {
        if (timed[i]) microseconds[i].push_back(timed[i]->measure([&] { bootstrap_->barrier(); }).front());
      }
    }
    Times own{};
    for (std::size_t i = 0; i < timed.size(); ++i) {
      if (timed[i]) own[i] = perf::median(std::move(microseconds[i]));
    }
    Times worst{};
    for (const Times& of : perf::RankGroup(*bootstrap_).gather(own)) {
      for (std::size_t i = 0; i < of.size(); ++i) worst[i] = std::max(worst[i], of[i]);
    }
    return worst;
  }

  const Options& options_;
  std::unique_ptr<perf::Backend> backend_;
  std::shared_ptr<Bootstrap> bootstrap_;
  std::shared_ptr<Communicator> communicator_;
  std::unique_ptr<Communicator> alone_;  ///< of this rank only
  std::shared_ptr<Collectives> collectives_;
  const DataType operands_;
  kernels::Cublas cublas_;
  std::unique_ptr<perf::Nccl> nccl_;
  bool isWrong_ = false;
};

}  // namespace

}  // namespace mscclpp::fusionbench

int main(int argc, char** argv) {
  using namespace mscclpp;
  return perf::mainOnGpus<fusionbench::Options>(
      "gemm", argc, argv, fusionbench::parse,
      [](const fusionbench::Options& options, ProcessGroup& group) { fusionbench::Bench(options, group).run(); });
}
