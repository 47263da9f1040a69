// Dispatch and combine of a mixture of experts in both forms, in graphs, beside NCCL's all-to-all of the same bytes.
// One process per GPU.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "backend.hpp"
#include "bench/json_line.hpp"
#include "gpu_main.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/launch/process_group.hpp"
#include "mscclpp/kernels/moe_buffer.hpp"
#include "nccl.hpp"
#include "rank_group.hpp"
#include "tools/command_line/command_line.hpp"

namespace mscclpp::moebench {

namespace {

/// What the predictions of docs/performance.md assume of a link.
constexpr double linkBytesPerMicrosecond = 365e3;
constexpr double fixedMicroseconds = 6;

struct Options {
  int ranks = 0;
  std::vector<int> tokens{1, 8, 32, 64, 128, 256, 512, 1024, 2048, 4096};
  int maxLowLatencyTokens = 512;
  int hidden = 7168;
  int experts = 256;
  int topk = 8;
  int blocks = 0;
  int lowLatencyBlocks = 0;
  std::vector<int> senders{-1};
  bool bf16 = false;
  bool quantise = false;
  bool bulk = false;
  bool nccl = false;
  std::string ncclLibrary;
  bool json = false;
  perf::TimingOptions timing;

  moe::RowFormat format() const {
    return bf16 ? moe::RowFormat::Bf16 : quantise ? moe::RowFormat::QuantiseBf16 : moe::RowFormat::Fp8;
  }
};

/// Returns the exit code if the program ends here.
std::optional<int> parse(int argc, char** argv, Options& options) {
  cli::CommandLine commandLine("Times dispatch and combine of a mixture of experts.");
  commandLine.add("-n,--ranks", options.ranks, "GPUs; default: all; 1: what a rank does by itself").range(1, 64);
  commandLine.add("--tokens", options.tokens, "tokens of a rank, such as 1,128,4096").range(1, 65535);
  commandLine.add("--max-low-latency", options.maxLowLatencyTokens, "the most tokens of the low-latency form")
      .range(1, static_cast<int>(moe::mostLowLatencyTokens));
  commandLine.add("--hidden", options.hidden, "elements of a row, a multiple of 16").range(16, 1 << 20);
  commandLine.add("--experts", options.experts, "experts of all ranks").range(1, 65535);
  commandLine.add("--topk", options.topk, "experts of a token").range(1, moe::maxTopk);
  commandLine.add("--blocks", options.blocks, "the most blocks of the bandwidth form; 0: one a multiprocessor")
      .range(0, 511);
  commandLine.add("--low-latency-blocks", options.lowLatencyBlocks, "the same of the low-latency form; 0: 128")
      .range(0, 511);
  commandLine
      .add("--senders", options.senders,
           "blocks of the bandwidth form that only send, such as 0,32,48; 0: each sends and receives; -1: the buffer's "
           "defaults for dispatch and combine")
      .range(-1, 511);
  commandLine.addFlag("--bulk", options.bulk, "the bandwidth form sends by bulk copies, if it does not quantise");
  commandLine.addFlag("--bf16", options.bf16, "dispatch bf16; default: fp8 with scales");
  commandLine.addFlag("--quantise", options.quantise, "dispatch fp8 that is quantised from bf16 in the kernel");
  commandLine.add("--calls", options.timing.calls, "calls per measurement, in one graph").range(1, 10'000);
  commandLine.add("--repeats", options.timing.repeats, "number of measurements; their median is reported")
      .range(1, 10'000);
  commandLine.addFlag("--nccl", options.nccl, "also measure NCCL's all-to-all of the same bytes for each rank");
  commandLine.add("--nccl-library", options.ncclLibrary, "path of NCCL; default: libnccl.so.2 as the loader finds it");
  commandLine.addFlag("--json", options.json, "print one line of JSON per measurement instead of the table");
  if (const auto exitCode = commandLine.parse(argc, argv)) return exitCode;
  if (options.ranks == 1 && options.nccl) return commandLine.reject("--nccl", "needs at least two ranks");
  if (options.hidden % 16 != 0) return commandLine.reject("--hidden", "must be a multiple of 16");
  if (options.topk > options.experts) {
    return commandLine.reject("--topk", fmt::format("must be at most the number of experts, {}", options.experts));
  }
  return std::nullopt;
}

class Bench {
 public:
  /// senders: one of options.senders.
  Bench(const Options& options, int senders, ProcessGroup& group)
      : options_(options),
        senders_(senders),
        backend_(perf::makeGpuBackend(group.localRank())),
        bootstrap_(group.connect()),
        communicator_(std::make_shared<Communicator>(bootstrap_)),
        most_(static_cast<std::uint32_t>(*std::max_element(options.tokens.begin(), options.tokens.end()))),
        buffer_(*communicator_, DeviceType::GPU, configOf(options, senders, most_)),
        handle_(buffer_.makeHandle()) {
    if (options.nccl) nccl_ = std::make_unique<perf::Nccl>(options.ncclLibrary, *bootstrap_);
    const auto hidden = static_cast<std::size_t>(options.hidden);
    // As many rows as random routings need, with a quarter to spare, and the low-latency form's, of which few are used.
    capacity_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(
        buffer_.largestCapacity(), std::uint64_t{most_} * static_cast<std::uint64_t>(options.topk) * 5 / 4 + 4096));
    const std::size_t rows = std::max(capacity_, buffer_.lowLatencyCapacity());
    rows_ = backend_->allocate(most_ * hidden * 2);
    scales_ = backend_->allocate(std::size_t{most_} * (buffer_.scaleGroups() + 1) * 4);
    experts_ = backend_->allocate(std::size_t{most_} * static_cast<std::size_t>(options.topk) * 8);
    weights_ = backend_->allocate(std::size_t{most_} * static_cast<std::size_t>(options.topk) * 4);
    received_ = backend_->allocate(rows * hidden * 2);
    receivedScales_ = backend_->allocate(rows * (buffer_.scaleGroups() + 1) * 4);
    words_ = backend_->allocate(4 * (2 * static_cast<std::size_t>(options.experts) + 2));
    output_ = backend_->allocate(most_ * hidden * 2);
    backend_->fill(rows_.get(), 0x3c, most_ * hidden * 2);
    backend_->fill(scales_.get(), 0x3c, std::size_t{most_} * (buffer_.scaleGroups() + 1) * 4);
    backend_->fill(received_.get(), 0x3c, rows * hidden * 2);
    route();
  }

  void run() {
    if (rank() == 0 && !options_.json) {
      fmt::print(
          "# {} GPUs, hidden {}, {} of {} experts, dispatch {}, combine bf16; {}{}; {}{} calls in a graph, median of "
          "{}, "
          "maximum over the ranks; us per call\n",
          bootstrap_->getNranks(), options_.hidden, options_.topk, options_.experts,
          options_.bf16       ? "bf16"
          : options_.quantise ? "bf16 to fp8"
                              : "fp8",
          senders_ >= 0 ? fmt::format("{} blocks only send; ", senders_) : "", backend_->description(),
          nccl_ ? "NCCL " + nccl_->version() + "; " : "", options_.timing.calls, options_.timing.repeats);
      fmt::print("# {:>6} {:>8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "tokens", "call", "MB to peers",
                 "low lat.", "bandwidth", "NCCL", "link", "GB/s", "x (6+link)");
    }
    for (const int tokens : options_.tokens) measure(static_cast<std::uint32_t>(tokens));
    buffer_.check();
    bootstrap_->barrier();
  }

 private:
  static moe::BufferConfig configOf(const Options& options, int senders, std::uint32_t most) {
    return {.maxTokens = most,
            .maxLowLatencyTokens = std::min(most, static_cast<std::uint32_t>(options.maxLowLatencyTokens)),
            .topk = options.topk,
            .experts = options.experts,
            .hidden = static_cast<std::uint32_t>(options.hidden),
            .format = options.format(),
            .blocks = options.blocks,
            .lowLatencyBlocks = options.lowLatencyBlocks,
            .bulkCopies = options.bulk,
            .sendingBlocks = std::max(senders, 0),
            .combineSendingBlocks = senders};
  }
  int rank() const { return bootstrap_->getRank(); }

  /// Distinct random experts for each token.
  void route() {
    std::mt19937 random(static_cast<unsigned>(rank()) + 1);
    for (std::uint32_t token = 0; token < most_; ++token) {
      std::vector<std::int64_t> chosen;
      while (static_cast<int>(chosen.size()) < options_.topk) {
        const auto expert = static_cast<std::int64_t>(random() % static_cast<unsigned>(options_.experts));
        if (std::find(chosen.begin(), chosen.end(), expert) == chosen.end()) chosen.push_back(expert);
      }
      chosen_.insert(chosen_.end(), chosen.begin(), chosen.end());
    }
    const std::vector<float> weights(chosen_.size(), 0.125f);
    backend_->upload(experts_.get(), chosen_.data(), chosen_.size() * 8);
    backend_->upload(weights_.get(), weights.data(), weights.size() * 4);
  }
  /// Rows that this rank sends to other ranks: each token counts once for each.
  std::uint64_t remoteRows(std::uint32_t tokens) const {
    const std::int64_t perRank = options_.experts / bootstrap_->getNranks();
    std::uint64_t rows = 0;
    for (std::size_t token = 0; token < tokens; ++token) {
      std::vector<bool> goesTo(static_cast<std::size_t>(bootstrap_->getNranks()));
      for (std::size_t j = 0; j < static_cast<std::size_t>(options_.topk); ++j) {
        goesTo[static_cast<std::size_t>(chosen_[token * static_cast<std::size_t>(options_.topk) + j] / perRank)] = true;
      }
      goesTo[static_cast<std::size_t>(rank())] = false;
      rows += static_cast<std::uint64_t>(std::count(goesTo.begin(), goesTo.end(), true));
    }
    return rows;
  }

  void measure(std::uint32_t tokens) {
    const moe::Tokens input{rows_.get(), static_cast<const float*>(scales_.get()),
                            static_cast<const std::int64_t*>(experts_.get()), static_cast<const float*>(weights_.get()),
                            tokens};
    auto* const words = static_cast<std::uint32_t*>(words_.get());
    moe::ExpertBatch batch{received_.get(), static_cast<float*>(receivedScales_.get()),
                           words,           words + options_.experts,
                           nullptr,         capacity_};
    const bool hasLowLatency = tokens <= buffer_.config().maxLowLatencyTokens;
    const std::uint64_t rows = remoteRows(tokens);
    const auto hidden = static_cast<std::uint64_t>(options_.hidden);
    const std::uint64_t dispatchBytes = rows * (options_.bf16 ? hidden * 2 : hidden + buffer_.scaleGroups() * 4);

    // Each combine is that of the dispatch before, which is not timed with it.
    const double dispatch = time([&](cudaStream_t stream) { buffer_.dispatch(input, batch, handle_, stream); });
    const double combine =
        time([&](cudaStream_t stream) { buffer_.combine(received_.get(), output_.get(), handle_, stream); });
    double fastDispatch = 0, fastCombine = 0;
    if (hasLowLatency) {
      batch.capacity = buffer_.lowLatencyCapacity();
      fastDispatch = time([&](cudaStream_t stream) { buffer_.lowLatencyDispatch(input, batch, handle_, stream); });
      fastCombine = time(
          [&](cudaStream_t stream) { buffer_.lowLatencyCombine(received_.get(), output_.get(), handle_, stream); });
    }
    report("dispatch", tokens, dispatchBytes, fastDispatch, dispatch);
    report("combine", tokens, rows * hidden * 2, fastCombine, combine);
  }

  /// NCCL's all-to-all in which a rank sends about as many bytes to the others.
  double timeNccl(std::uint64_t bytes) {
    if (!nccl_) return 0;
    const auto ranks = static_cast<std::uint64_t>(bootstrap_->getNranks());
    std::uint64_t most = bytes;
    std::vector<std::uint64_t> all(ranks);
    all[static_cast<std::size_t>(rank())] = bytes;
    bootstrap_->allGather(all.data(), sizeof(std::uint64_t));
    for (const std::uint64_t of : all) most = std::max(most, of);
    const std::size_t part = most / (ranks - 1) / 16 * 16;
    if (part == 0 || part * ranks > ncclBytes_) {
      ncclInput_ = backend_->allocate(part * ranks);
      ncclOutput_ = backend_->allocate(part * ranks);
      ncclBytes_ = part * ranks;
    }
    return time([&](cudaStream_t stream) {
      nccl_->run({.collective = CollectiveType::AllToAll,
                  .input = ncclInput_.get(),
                  .output = ncclOutput_.get(),
                  .count = part,
                  .type = DataType::UINT8,
                  .stream = stream});
    });
  }

  void report(const char* call, std::uint32_t tokens, std::uint64_t bytes, double lowLatency, double bandwidth) {
    const double nccl = timeNccl(bytes);
    if (rank() != 0) return;
    const double link = static_cast<double>(bytes) / linkBytesPerMicrosecond;
    const double best = lowLatency > 0 ? std::min(lowLatency, bandwidth) : bandwidth;
    const double rate = static_cast<double>(bytes) / best / 1e3;
    if (options_.json) {
      fmt::print("{}\n", bench::JsonLine()
                             .add("ranks", bootstrap_->getNranks())
                             .add("call", call)
                             .add("tokens", std::uint64_t{tokens})
                             .add("senders", senders_)
                             .add("bytes_to_peers", bytes)
                             .add("low_latency_us", lowLatency)
                             .add("bandwidth_us", bandwidth)
                             .add("nccl_us", nccl)
                             .add("link_us", link)
                             .add("gb_per_s", rate)
                             .text());
    } else {
      const auto text = [](double us) { return us > 0 ? fmt::format("{:.2f}", us) : std::string("-"); };
      fmt::print("{:>8} {:>8} {:>10.3f} {:>10} {:>10} {:>10} {:>10.2f} {:>10.1f} {:>10.2f}\n", tokens, call,
                 static_cast<double>(bytes) / 1e6, text(lowLatency), text(bandwidth), text(nccl), link, rate,
                 best / (fixedMicroseconds + link));
    }
    std::fflush(stdout);
  }

  double time(const perf::Call& call) {
    bootstrap_->barrier();
    backend_->runOnce(call);
    const double own = backend_->time(call, options_.timing, [&] { bootstrap_->barrier(); });
    const auto all = perf::RankGroup(*bootstrap_).gather(own);
    return *std::max_element(all.begin(), all.end());
  }

  const Options& options_;
  const int senders_;
  std::unique_ptr<perf::Backend> backend_;
  std::shared_ptr<Bootstrap> bootstrap_;
  std::shared_ptr<Communicator> communicator_;
  std::uint32_t most_;
  moe::Buffer buffer_;
  moe::DispatchHandle handle_;
  std::unique_ptr<perf::Nccl> nccl_;
  std::uint32_t capacity_ = 0;
  std::vector<std::int64_t> chosen_;
  std::shared_ptr<void> rows_, scales_, experts_, weights_, received_, receivedScales_, words_, output_;
  std::shared_ptr<void> ncclInput_, ncclOutput_;
  std::size_t ncclBytes_ = 0;
};

}  // namespace

}  // namespace mscclpp::moebench

int main(int argc, char** argv) {
  using namespace mscclpp;
  return perf::mainOnGpus<moebench::Options>("moe", argc, argv, moebench::parse,
                                             [](const moebench::Options& options, ProcessGroup& group) {
                                               for (const int senders : options.senders)
                                                 moebench::Bench(options, senders, group).run();
                                             });
}
