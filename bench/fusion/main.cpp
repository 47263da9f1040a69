// All-reduce, residual and RMSNorm of bf16 rows: in one kernel, compared with the compiled all-reduce and with NCCL's,
// each followed by a kernel for the rest. One process per GPU.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <vector>

#include "backend.hpp"
#include "bench/fusion/random_rows.hpp"
#include "bench/json_line.hpp"
#include "gpu_main.hpp"
#include "kernels.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/launch/process_group.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "nccl.hpp"
#include "rank_group.hpp"
#include "tools/command_line/command_line.hpp"

namespace mscclpp::fusionbench {

namespace {

constexpr std::size_t elementBytes = 2;  // bf16

struct Options {
  int ranks = 0;
  std::vector<int> rows{1, 4, 16, 64, 256, 1024, 4096};
  std::vector<int> hidden{4096, 8192};
  std::uint64_t maxOneShotBytes = 4 << 20;
  bool nccl = false;
  std::string ncclLibrary;
  bool json = false;
  FusedShape shape{0, 0};
  perf::TimingOptions timing;
};

/// Returns the exit code if the program ends here.
std::optional<int> parse(int argc, char** argv, Options& options) {
  cli::CommandLine commandLine("Times all-reduce, residual and RMSNorm in one kernel and as separate kernels.");
  commandLine.add("-n,--ranks", options.ranks, "GPUs; default: all").range(2, 64);
  commandLine.add("--rows", options.rows, "rows, such as 1,64,4096").range(1, 1 << 20);
  commandLine.add("--hidden", options.hidden, "elements of a row, multiples of 8, at most 8192").range(8, 8192);
  commandLine.add("--calls", options.timing.calls, "calls per measurement, in one graph").range(1, 10'000);
  commandLine.add("--repeats", options.timing.repeats, "number of measurements; their median is reported")
      .range(1, 10'000);
  commandLine.addFlag("--nccl", options.nccl, "also measure NCCL's all-reduce followed by the kernel for the rest");
  commandLine.add("--nccl-library", options.ncclLibrary, "path of NCCL; default: libnccl.so.2 as the loader finds it");
  commandLine
      .add("--blocks", options.shape.blocks,
           "the most blocks of the fused kernel, which have to be resident at once; 0: chosen so")
      .range(0, 511);
  commandLine.add("--threads", options.shape.threads, "threads of its blocks, a multiple of 32; 0: chosen by the row")
      .range(0, 512);
  commandLine.addFlag("--json", options.json, "print one line of JSON per measurement instead of the table");
  if (const auto exitCode = commandLine.parse(argc, argv)) return exitCode;
  for (const int hidden : options.hidden) {
    if (hidden % 8 != 0) return commandLine.reject("--hidden", "must be a multiple of 8");
    if (options.shape.threads > 0 && options.shape.threads * 16 < hidden) {
      return commandLine.reject("--threads", "is too few: a thread holds 16 elements of a row");
    }
  }
  if (options.shape.threads % 32 != 0) return commandLine.reject("--threads", "must be a multiple of 32");
  return std::nullopt;
}

class Bench {
 public:
  Bench(const Options& options, ProcessGroup& group)
      : options_(options),
        backend_(perf::makeGpuBackend(group.localRank())),
        bootstrap_(group.connect()),
        communicator_(std::make_shared<Communicator>(bootstrap_)),
        collectives_(communicator_, DeviceType::GPU) {
    if (options.nccl) nccl_ = std::make_unique<perf::Nccl>(options.ncclLibrary, *bootstrap_);
    const auto most = [](const std::vector<int>& of) {
      return static_cast<std::size_t>(*std::max_element(of.begin(), of.end()));
    };
    const std::size_t maxElements = most(options.rows) * most(options.hidden);
    oneShot_ = makeFusedNorm(*communicator_, FusedPattern::OneShot,
                             std::min<std::size_t>(maxElements, options.maxOneShotBytes / elementBytes), options.shape);
    twoShot_ = makeFusedNorm(*communicator_, FusedPattern::TwoShot, maxElements, options.shape);
    const std::size_t bytes = maxElements * elementBytes;
    for (auto* buffer : {&reduced_, &newResidual_, &normalised_}) *buffer = backend_->allocate(bytes);
    input_ = randomRows(*backend_, maxElements, 100u + static_cast<std::uint32_t>(rank()));
    residual_ = randomRows(*backend_, maxElements, 1);
    weight_ = randomRows(*backend_, most(options.hidden), 2);
  }

  void run() {
    if (rank() == 0 && !options_.json) {
      fmt::print("# {} GPUs, bf16; {}; {}{} calls in a graph, median of {}, maximum over the ranks; us per call\n",
                 bootstrap_->getNranks(), backend_->description(), nccl_ ? "NCCL " + nccl_->version() + "; " : "",
                 options_.timing.calls, options_.timing.repeats);
      fmt::print("# {:>6} {:>7} {:>10} {:>10} {:>10} {:>10} {:>10} {:>9}\n", "rows", "hidden", "one-shot", "two-shot",
                 "separate", "NCCL", "speedup", "same bits");
    }
    for (const int hidden : options_.hidden) {
      for (const int rows : options_.rows) measure(static_cast<std::size_t>(rows), static_cast<std::size_t>(hidden));
    }
    oneShot_->check();
    twoShot_->check();
    collectives_.check();
    bootstrap_->barrier();
    if (differs_) throw Error("the outputs of the implementations differ", ErrorCode::InternalError);
  }

 private:
  struct Result {
    double us = 0;  ///< 0: not measured
    bool isSame = true;
  };

  int rank() const { return bootstrap_->getRank(); }

  void measure(std::size_t rows, std::size_t hidden) {
    const std::size_t count = rows * hidden;
    const Norm fused{rows, hidden, input_.get(), residual_.get(), weight_.get(), newResidual_.get(), normalised_.get()};
    Norm rest = fused;
    rest.input = reduced_.get();
    const CollectiveCall allReduce{.collective = CollectiveType::AllReduce,
                                   .input = input_.get(),
                                   .output = reduced_.get(),
                                   .count = count,
                                   .type = DataType::BFLOAT16,
                                   .reduction = ReduceOp::SUM};
    const auto followedByRest = [&](const auto& run) {
      return [&, run](cudaStream_t stream) {
        CollectiveCall call = allReduce;
        call.stream = stream;
        run(call);
        enqueueSeparateNorm(rest, stream);
      };
    };
    expected_.clear();
    const Result separate = time(followedByRest([&](const CollectiveCall& call) { collectives_.run(call); }), count);
    Result oneShot, nccl;
    if (count * elementBytes <= options_.maxOneShotBytes) {
      oneShot = time([&](cudaStream_t stream) { oneShot_->enqueue(fused, stream); }, count);
    }
    const Result twoShot = time([&](cudaStream_t stream) { twoShot_->enqueue(fused, stream); }, count);
    // NCCL adds in another order: its bits may differ.
    if (nccl_) nccl = time(followedByRest([&](const CollectiveCall& call) { nccl_->run(call); }), count);
    const bool isSame = oneShot.isSame && twoShot.isSame;
    differs_ = differs_ || !isSame;
    if (rank() != 0) return;
    const double best = oneShot.us > 0 ? std::min(oneShot.us, twoShot.us) : twoShot.us;
    const double baseline = nccl.us > 0 ? std::min(separate.us, nccl.us) : separate.us;
    if (options_.json) {
      fmt::print("{}\n", bench::JsonLine()
                             .add("ranks", bootstrap_->getNranks())
                             .add("rows", std::uint64_t{rows})
                             .add("hidden", std::uint64_t{hidden})
                             .add("one_shot_us", oneShot.us)
                             .add("two_shot_us", twoShot.us)
                             .add("separate_us", separate.us)
                             .add("nccl_us", nccl.us)
                             .add("speedup", baseline / best)
                             .add("same_bits", isSame)
                             .text());
    } else {
      const auto text = [](const Result& r) { return r.us > 0 ? fmt::format("{:.2f}", r.us) : std::string("-"); };
      fmt::print("{:>8} {:>7} {:>10} {:>10} {:>10} {:>10} {:>10.2f} {:>9}\n", rows, hidden, text(oneShot),
                 text(twoShot), text(separate), text(nccl), baseline / best, isSame ? "yes" : "NO");
    }
    std::fflush(stdout);
  }

  /// Runs a call once and compares its output with that of the first implementation, then times it.
  Result time(const perf::Call& call, std::size_t count) {
    backend_->fill(normalised_.get(), 0x5a, count * elementBytes);
    bootstrap_->barrier();
    backend_->runOnce(call);
    std::vector<std::uint16_t> output(count);
    backend_->download(output.data(), normalised_.get(), count * elementBytes);
    if (expected_.empty()) expected_ = output;
    const Result own{backend_->time(call, options_.timing, [&] { bootstrap_->barrier(); }), output == expected_};
    Result worst;
    for (const Result& of : perf::RankGroup(*bootstrap_).gather(own))
      worst = {std::max(worst.us, of.us), worst.isSame && of.isSame};
    return worst;
  }

  const Options& options_;
  std::unique_ptr<perf::Backend> backend_;
  std::shared_ptr<Bootstrap> bootstrap_;
  std::shared_ptr<Communicator> communicator_;
  Collectives collectives_;
  std::unique_ptr<perf::Nccl> nccl_;
  std::unique_ptr<FusedNorm> oneShot_, twoShot_;
  std::shared_ptr<void> input_, residual_, weight_, reduced_, newResidual_, normalised_;
  std::vector<std::uint16_t> expected_;
  bool differs_ = false;
};

}  // namespace

}  // namespace mscclpp::fusionbench

int main(int argc, char** argv) {
  using namespace mscclpp;
  return perf::mainOnGpus<fusionbench::Options>(
      "fusion", argc, argv, fusionbench::parse,
      [](const fusionbench::Options& options, ProcessGroup& group) { fusionbench::Bench(options, group).run(); });
}
