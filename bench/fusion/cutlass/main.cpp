// GEMMs of tensor-parallel layers in bfloat16. On one GPU: cuBLAS, CUTLASS's kernel of the tile that is chosen for the
// shape, or of each, and the same kernel when it sends its tiles to the slots of a row exchange. On two: the kernel
// fused with an all-reduce, compared with cuBLAS followed by the library's all-reduce or NCCL's. One process per GPU;
// graphs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "backend.hpp"
#include "bench/fusion/random_rows.hpp"
#include "bench/json_line.hpp"
#include "gemm.hpp"
#include "kernels/gemm/cublas.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/collective/epoch.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"
#include "mscclpp/host/cuda/gpu.hpp"
#include "mscclpp/host/launch/process_group.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "nccl.hpp"
#include "rank_group.hpp"
#include "tools/command_line/command_line.hpp"

namespace mscclpp::cutlassbench {

namespace {

struct Options {
  int ranks = 0;
  int tensorParallel = 2;
  std::vector<int> rows{128, 1024, 4096, 8192};
  int swizzle = 4;
  bool everyTile = false;
  bool registers = false;
  bool nccl = false;
  std::string ncclLibrary, cuBlasLibrary;
  bool json = false;
  perf::TimingOptions timing;
};

/// A row-parallel layer: its inner dimension is divided over the ranks.
struct Layer {
  const char* name;
  int outputs;
  int inputs;
};
constexpr std::array<Layer, 6> layers{{{"Llama-3-70B o_proj", 8192, 8192},
                                       {"Llama-3-70B down_proj", 8192, 28672},
                                       {"Llama-3-405B o_proj", 16384, 16384},
                                       {"Llama-3-405B down_proj", 16384, 53248},
                                       {"Qwen3-32B o_proj", 5120, 8192},
                                       {"Qwen3-32B down_proj", 5120, 25600}}};

std::optional<int> parse(int argc, char** argv, Options& options) {
  cli::CommandLine commandLine("Times GEMMs of CUTLASS, alone and fused with an all-reduce.");
  commandLine.add("-n,--ranks", options.ranks, "GPUs, 1 or 2; default: 2 if there are two").range(1, exchangeRanks);
  commandLine.add("--tp", options.tensorParallel, "what the inner dimension of a layer is divided by").range(1, 64);
  commandLine.add("--rows", options.rows, "rows (tokens), such as 128,4096").range(1, 1 << 16);
  commandLine.add("--swizzle", options.swizzle, "the most rows of tiles between which a kernel of CUTLASS alternates")
      .range(1, 8);
  commandLine.addFlag("--every-tile", options.everyTile,
                      "measure every tile, not the one that is chosen for the shape");
  commandLine.addFlag("--registers", options.registers,
                      "the fused kernels contribute from registers (a visitor tree), not from shared memory by TMA");
  commandLine.add("--calls", options.timing.calls, "calls per measurement, in one graph").range(1, 10'000);
  commandLine.add("--repeats", options.timing.repeats, "number of measurements; their median is reported")
      .range(1, 10'000);
  commandLine.addFlag("--nccl", options.nccl, "also measure cuBLAS followed by NCCL's all-reduce");
  commandLine.add("--nccl-library", options.ncclLibrary, "path of NCCL; default: libnccl.so.2 as the loader finds it");
  commandLine.add("--cublas-library", options.cuBlasLibrary, "path of cuBLAS; default: as the loader finds it");
  commandLine.addFlag("--json", options.json, "print one line of JSON per measurement instead of the table");
  return commandLine.parse(argc, argv);
}

class Bench {
 public:
  Bench(const Options& options, ProcessGroup& group)
      : options_(options),
        backend_(perf::makeGpuBackend(group.localRank())),
        bootstrap_(group.connect()),
        communicator_(std::make_shared<Communicator>(bootstrap_)),
        monitor_(*communicator_, DeviceType::GPU),
        cublas_(options.cuBlasLibrary) {
    if (isFused()) collectives_ = std::make_unique<Collectives>(communicator_, DeviceType::GPU);
    if (options.nccl && isFused()) nccl_ = std::make_unique<perf::Nccl>(options.ncclLibrary, *bootstrap_);
  }

  void run() {
    if (bootstrap_->getRank() == 0 && !options_.json) {
      fmt::print("# {} GPU(s), bfloat16, TP{}; {}; {}{} calls in a graph, median of {}, maximum over the ranks\n",
                 bootstrap_->getNranks(), options_.tensorParallel, backend_->description(),
                 nccl_ ? "NCCL " + nccl_->version() + "; " : "", options_.timing.calls, options_.timing.repeats);
      fmt::print("# {:<22} {:>6} {:>6} {:>6} {:>9} {:>9} {:>9} {:>9} {:>7} {:>7} {:>7}", "us per call", "m", "n", "k",
                 "tile", "cuBLAS", "CUTLASS", "inside", "TFLOP/s", "cu/stock", "st/ins");
      if (isFused()) fmt::print(" {:>9} {:>9} {:>9} {:>7}", "fused", "serial", "NCCL", "speedup");
      fmt::print("\n");
    }
    for (const Layer& layer : layers) {
      for (const int rows : options_.rows) {
        const int n = layer.outputs, k = layer.inputs / options_.tensorParallel;
        const int chosen = cutlassTileFor(rows, n, k, multiprocessors_);
        for (int tile = 0; tile < cutlassTileCount; ++tile) {
          if (options_.everyTile || tile == chosen) measure(layer, {rows, n, k}, tile);
        }
      }
    }
    monitor_.check();
    bootstrap_->barrier();
    if (differs_) throw Error("the outputs differ by more than their rounding", ErrorCode::InternalError);
  }

 private:
  bool isFused() const { return bootstrap_->getNranks() == exchangeRanks; }

  struct Sizes {
    int rows, n, k;
  };

  void measure(const Layer& layer, const Sizes& sizes, int tile) {
    const auto [rows, n, k] = sizes;
    const Kernels& kernels = kernels_[static_cast<std::size_t>(tile)];
    const FusedKernels& fusedKernels = options_.registers ? kernels.fromRegisters : kernels.fromSharedMemory;
    const auto outputCount = static_cast<std::size_t>(rows) * static_cast<std::size_t>(n);
    const int rank = bootstrap_->getRank();
    const auto a = fusionbench::randomRows(*backend_, static_cast<std::size_t>(rows) * static_cast<std::size_t>(k),
                                           100u + static_cast<std::uint32_t>(rank));
    const auto b = fusionbench::randomRows(*backend_, static_cast<std::size_t>(n) * static_cast<std::size_t>(k),
                                           200u + static_cast<std::uint32_t>(rank));
    const auto out = backend_->allocate(outputCount * sizeof(bf16));
    const Problem problem{rows, n, k, a.get(), b.get(), out.get(), options_.swizzle};

    // Slots for two ranks on this GPU: what the GEMM inside takes without the link.
    const std::size_t bytes = kernels.exchangeBytes(rows, n);
    const std::array<std::shared_ptr<void>, exchangeRanks> slots{backend_->allocate(bytes), backend_->allocate(bytes)};
    Exchange local{.rank = 0, .window = {}, .epochs = nullptr, .wait = wait()};
    for (std::size_t i = 0; i < exchangeRanks; ++i) {
      backend_->fill(slots[i].get(), 0, bytes);
      local.window.base[i] = static_cast<std::byte*>(slots[i].get());
    }
    const auto localEpochs = epochs();
    local.epochs = static_cast<std::uint64_t*>(localEpochs.get());

    const auto stock = kernels.makeStock(problem);
    const auto inside = fusedKernels.makeInside != nullptr ? fusedKernels.makeInside(problem, local) : nullptr;
    const auto cuBlasCall = [&](cudaStream_t stream) {
      cublas_.multiply(problem.a, problem.b, problem.out, static_cast<std::size_t>(problem.m),
                       static_cast<std::size_t>(problem.n), static_cast<std::size_t>(problem.k), stream);
    };
    const auto enqueue = [](const std::unique_ptr<Gemm>& gemm) {
      return [&gemm](cudaStream_t stream) { gemm->enqueue(stream); };
    };
    const auto expected = outputOf(cuBlasCall, out, outputCount);
    requireClose(outputOf(enqueue(stock), out, outputCount), expected, "CUTLASS's kernel");
    // Alternating, since the clock of the GPU changes.
    double cuBlasTime = 0, stockTime = 0, insideTime = 0;
    constexpr int turns = 3;
    for (int turn = 0; turn < turns; ++turn) {
      cuBlasTime += time(cuBlasCall) / turns;
      stockTime += time(enqueue(stock)) / turns;
      if (inside) insideTime += time(enqueue(inside)) / turns;
    }
    double fusedTime = 0, serialTime = 0, ncclTime = 0;
    if (isFused()) {
      const SymmetricMemory memory(*communicator_, bytes, DeviceType::GPU);
      const auto ownEpochs = epochs();
      const auto fused = fusedKernels.makeFused(problem, {.rank = rank,
                                                          .window = memory.window<exchangeRanks>(),
                                                          .epochs = static_cast<std::uint64_t*>(ownEpochs.get()),
                                                          .wait = wait()});
      const CollectiveCall allReduce{.collective = CollectiveType::AllReduce,
                                     .input = out.get(),
                                     .output = out.get(),
                                     .count = outputCount,
                                     .type = DataType::BFLOAT16,
                                     .reduction = ReduceOp::SUM};
      const auto followedBy = [&](const auto& reduce) {
        return [&, reduce](cudaStream_t stream) {
          cuBlasCall(stream);
          CollectiveCall call = allReduce;
          call.stream = stream;
          reduce(call);
        };
      };
      const auto serial = followedBy([&](const CollectiveCall& call) { collectives_->run(call); });
      const auto sum = outputOf(serial, out, outputCount);
      requireClose(outputOf(enqueue(fused), out, outputCount), sum, "the fused kernel");
      for (int turn = 0; turn < turns; ++turn) {
        fusedTime += time(enqueue(fused)) / turns;
        serialTime += time(serial) / turns;
        if (nccl_) ncclTime += time(followedBy([&](const CollectiveCall& call) { nccl_->run(call); })) / turns;
      }
      bootstrap_->barrier();
    }
    if (rank != 0) return;
    const double teraflops = 2.0 * rows * n * k / stockTime / 1e6;
    const double speedup = fusedTime > 0 ? (nccl_ ? std::min(serialTime, ncclTime) : serialTime) / fusedTime : 0;
    if (options_.json) {
      fmt::print("{}\n", bench::JsonLine()
                             .add("layer", std::string(layer.name))
                             .add("m", rows)
                             .add("n", n)
                             .add("k", k)
                             .add("tile_rows", cutlassTiles[tile].rows)
                             .add("tile_columns", cutlassTiles[tile].columns)
                             .add("contributes_from", std::string(options_.registers ? "registers" : "shared memory"))
                             .add("cublas_us", cuBlasTime)
                             .add("stock_us", stockTime)
                             .add("inside_us", insideTime)
                             .add("stock_tflops", teraflops)
                             .add("stock_to_cublas", cuBlasTime / stockTime)
                             .add("inside_to_stock", inside ? stockTime / insideTime : 0)
                             .add("fused_us", fusedTime)
                             .add("serial_us", serialTime)
                             .add("nccl_us", ncclTime)
                             .add("speedup", speedup)
                             .text());
    } else {
      fmt::print("{:<24} {:>6} {:>6} {:>6} {:>9} {:>9.2f} {:>9.2f} {:>9.2f} {:>7.0f} {:>7.3f} {:>7.3f}", layer.name,
                 rows, n, k, fmt::format("{}x{}", cutlassTiles[tile].rows, cutlassTiles[tile].columns), cuBlasTime,
                 stockTime, insideTime, teraflops, cuBlasTime / stockTime, inside ? stockTime / insideTime : 0);
      if (isFused()) fmt::print(" {:>9.2f} {:>9.2f} {:>9.2f} {:>7.2f}", fusedTime, serialTime, ncclTime, speedup);
      fmt::print("\n");
    }
    std::fflush(stdout);
  }

  BoundedWait wait() const {
    return {monitor_.deviceControl(), static_cast<std::uint64_t>(monitor_.timeout().count())};
  }
  std::shared_ptr<void> epochs() {
    auto memory = backend_->allocate(epochWords * sizeof(std::uint64_t));
    const std::vector<std::uint64_t> words(epochWords, firstEpoch);
    backend_->upload(memory.get(), words.data(), words.size() * sizeof(std::uint64_t));
    return memory;
  }

  std::vector<std::uint16_t> outputOf(const perf::Call& call, const std::shared_ptr<void>& out, std::size_t count) {
    backend_->fill(out.get(), 0xff, count * sizeof(bf16));  // NaN
    bootstrap_->barrier();
    backend_->runOnce(call);
    monitor_.check();
    std::vector<std::uint16_t> output(count);
    backend_->download(output.data(), out.get(), count * sizeof(bf16));
    return output;
  }
  /// Marks the run as wrong unless each element is within two roundings of the largest magnitude from the other one.
  void requireClose(const std::vector<std::uint16_t>& output, const std::vector<std::uint16_t>& expected,
                    const char* what) {
    const auto valueOf = [](std::uint16_t bits) {
      const std::uint32_t word = static_cast<std::uint32_t>(bits) << 16;
      float value = 0;
      std::memcpy(&value, &word, sizeof(value));
      return value;
    };
    float largest = 0, error = 0;
    bool isNumber = true;
    for (std::size_t i = 0; i < output.size(); ++i) {
      const float got = valueOf(output[i]), wanted = valueOf(expected[i]);
      largest = std::max(largest, std::fabs(wanted));
      error = std::max(error, std::fabs(got - wanted));
      isNumber = isNumber && got == got;
    }
    if (isNumber && error <= largest / 64) return;
    differs_ = true;
    fmt::print(stderr, "{}: differs by up to {} where the largest element is {}{}\n", what, error, largest,
               isNumber ? "" : ", and has elements that were not written");
  }

  double time(const perf::Call& call) {
    const double own = backend_->time(call, options_.timing, [&] { bootstrap_->barrier(); });
    const auto all = perf::RankGroup(*bootstrap_).gather(own);
    return *std::max_element(all.begin(), all.end());
  }

  template <int... tiles>
  static std::array<Kernels, sizeof...(tiles)> allKernels(std::integer_sequence<int, tiles...> /*tiles*/) {
    return {kernelsOf<tiles>()...};
  }
  static int multiprocessorsOfGpu() {
    int device = 0, count = 0;
    MSCCLPP_CUDATHROW(cudaGetDevice(&device));
    MSCCLPP_CUDATHROW(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
    return count;
  }

  const Options& options_;
  const std::array<Kernels, cutlassTileCount> kernels_ =
      allKernels(std::make_integer_sequence<int, cutlassTileCount>());
  std::unique_ptr<perf::Backend> backend_;
  int multiprocessors_ = multiprocessorsOfGpu();
  std::shared_ptr<Bootstrap> bootstrap_;
  std::shared_ptr<Communicator> communicator_;
  WaitMonitor monitor_;
  kernels::Cublas cublas_;
  std::unique_ptr<Collectives> collectives_;
  std::unique_ptr<perf::Nccl> nccl_;
  bool differs_ = false;
};

}  // namespace

}  // namespace mscclpp::cutlassbench

int main(int argc, char** argv) {
  using namespace mscclpp;
  constexpr int exitSkipped = 77;
  try {
    cutlassbench::Options options;
    if (const auto exitCode = cutlassbench::parse(argc, argv, options)) return *exitCode;
    std::string reason;
    const int gpus = perf::gpuCount(reason);
    if (gpus < 1 || options.ranks > gpus) {
      fmt::print(stderr, "cutlass: needs {} GPU(s), found {}{}\n", std::max(1, options.ranks), gpus,
                 reason.empty() ? "" : ": " + reason);
      return exitSkipped;
    }
    const int ranks = options.ranks > 0 ? options.ranks : std::min(gpus, cutlassbench::exchangeRanks);
    return runRanks(ranks, {argv, argv + argc},
                    [&](ProcessGroup& group) { cutlassbench::Bench(options, group).run(); });
  } catch (const std::exception& error) {
    fmt::print(stderr, "cutlass: {}\n", error.what());
    return 1;
  }
}
