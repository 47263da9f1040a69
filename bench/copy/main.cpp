// The bandwidth at which each GPU sends to all its peers at once: plain 16-byte stores compared with bulk copies, by
// number of blocks. One process per GPU.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "backend.hpp"
#include "bench/json_line.hpp"
#include "gpu_main.hpp"
#include "kernels.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "mscclpp/host/launch/process_group.hpp"
#include "tools/command_line/command_line.hpp"

namespace mscclpp::copybench {

namespace {

struct Options {
  int ranks = 0;
  std::vector<int> blocks{1, 2, 4, 8, 16, 32, 64, 132};
  std::vector<std::uint64_t> sizes{1 << 20, 16 << 20, 64 << 20};
  std::vector<int> threads{512};
  std::vector<std::uint64_t> chunkSizes{256 << 10};
  bool allShapes = false;
  bool json = false;
  perf::TimingOptions timing{.warmup = 5, .calls = 20, .repeats = 7};
};

/// Returns the exit code if the program ends here.
std::optional<int> parse(int argc, char** argv, Options& options) {
  cli::CommandLine commandLine(
      "Times each GPU sending a message to every peer at once: plain stores compared with bulk copies.");
  commandLine.add("-n,--ranks", options.ranks, "GPUs; default: all").range(2, maxPeers + 1);
  commandLine.add("--blocks", options.blocks, "blocks per GPU, such as 1,8,32").range(1, 1 << 16);
  commandLine.addBytes("--sizes", options.sizes, "bytes to each peer, such as 1M,64M; multiples of 16");
  commandLine.add("--threads", options.threads, "threads per block of the plain stores, such as 256,1024")
      .range(32, 1024);
  commandLine.addBytes("--chunk-sizes", options.chunkSizes,
                       "bytes that a block of the plain stores sends to one peer before the next, such as 64K,1M");
  commandLine.addFlag("--all-shapes", options.allShapes, "also measure other shapes of bulk copies");
  commandLine.add("--calls", options.timing.calls, "calls per measurement, in one graph").range(1, 10'000);
  commandLine.add("--repeats", options.timing.repeats, "number of measurements; their median is reported")
      .range(1, 10'000);
  commandLine.addFlag("--json", options.json, "print one line of JSON per measurement instead of the table");
  if (const auto exitCode = commandLine.parse(argc, argv)) return exitCode;
  const auto areMultiples = [](const std::vector<std::uint64_t>& sizes) {
    return std::all_of(sizes.begin(), sizes.end(), [](auto size) { return size != 0 && size % 16 == 0; });
  };
  if (!areMultiples(options.sizes)) return commandLine.reject("--sizes", "must be a multiple of 16");
  if (!areMultiples(options.chunkSizes)) return commandLine.reject("--chunk-sizes", "must be a multiple of 16");
  return std::nullopt;
}

class Sender {
 public:
  Sender(std::shared_ptr<Bootstrap> bootstrap, std::size_t maxBytes, int maxBlocks)
      : bootstrap_(bootstrap),
        communicator_(bootstrap),
        rank_(bootstrap->getRank()),
        ranks_(bootstrap->getNranks()),
        maxBytes_(maxBytes),
        recvBuffer_(communicator_, maxBytes * static_cast<std::size_t>(ranks_), DeviceType::GPU),
        sendBuffer_(maxBytes * static_cast<std::size_t>(ranks_)),
        wrong_(1),
        times_(static_cast<std::size_t>(maxBlocks)),
        workCounter_(1) {}

  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  void barrier() { bootstrap_->barrier(); }
  template <class T>
  std::vector<T> gather(T mine) {
    std::vector<T> all(static_cast<std::size_t>(ranks_));
    all[static_cast<std::size_t>(rank_)] = mine;
    bootstrap_->allGather(all.data(), sizeof(T));
    return all;
  }

  /// Rank r's message for p lies in slot p of r's sendBuffer and goes to slot r of p's recvBuffer.
  AllToAllArgs args(std::size_t bytes) {
    AllToAllArgs result{};
    result.peers = ranks_ - 1;
    result.bytes = bytes;
    result.times = times_.data();
    result.workCounter = workCounter_.data();
    for (int i = 0; i < result.peers; ++i) {
      const int peer = (rank_ + 1 + i) % ranks_;
      result.to[i] = slot(recvBuffer_.peer(peer), rank_);
      result.from[i] = slot(sendBuffer_.data(), peer);
    }
    return result;
  }

  /// Executes the first call with these parameters; returns the number of wrong 4-byte words that this rank received.
  unsigned long long check(perf::Backend& backend, const perf::Call& call, std::size_t bytes) {
    backend.fill(recvBuffer_.local(), 0x5a, recvBuffer_.bytes());
    backend.fill(wrong_.data(), 0, sizeof(unsigned long long));
    backend.fill(workCounter_.data(), 0, sizeof(std::uint64_t));
    backend.runOnce([&](cudaStream_t stream) {
      for (int peer = 0; peer < ranks_; ++peer) {
        if (peer != rank_) copybench::fill(slot(sendBuffer_.data(), peer), bytes, rank_, peer, stream);
      }
    });
    barrier();
    backend.runOnce(call);
    barrier();
    backend.runOnce([&](cudaStream_t stream) {
      for (int peer = 0; peer < ranks_; ++peer) {
        if (peer != rank_) countWrong(slot(recvBuffer_.local(), peer), bytes, peer, rank_, wrong_.data(), stream);
      }
    });
    unsigned long long wrong = 0;
    backend.download(&wrong, wrong_.data(), sizeof(wrong));
    return wrong;
  }

  /// The fraction of the last call's time that its blocks were idle because they had finished before others.
  double idleFraction(perf::Backend& backend, int blocks) const {
    std::vector<BlockTimes> times(static_cast<std::size_t>(blocks));
    backend.download(times.data(), times_.data(), times.size() * sizeof(BlockTimes));
    std::uint64_t first = times[0].begin;
    std::uint64_t last = times[0].end;
    for (const BlockTimes& block : times) {
      first = std::min(first, block.begin);
      last = std::max(last, block.end);
    }
    double idle = 0;
    for (const BlockTimes& block : times) idle += static_cast<double>(last - block.end);
    return idle / static_cast<double>(last - first) / blocks;
  }

 private:
  std::byte* slot(void* base, int index) const {
    return static_cast<std::byte*>(base) + maxBytes_ * static_cast<std::size_t>(index);
  }

  std::shared_ptr<Bootstrap> bootstrap_;
  Communicator communicator_;
  int rank_;
  int ranks_;
  std::size_t maxBytes_;
  SymmetricMemory recvBuffer_;
  GpuBuffer<std::byte> sendBuffer_;
  GpuBuffer<unsigned long long> wrong_;
  GpuBuffer<BlockTimes> times_;
  GpuBuffer<std::uint64_t> workCounter_;
};

void print(const Options& options, const std::string& name, int ranks, int blocks, std::size_t bytes,
           double microseconds, double idle, unsigned long long wrong) {
  const double rate = static_cast<double>(bytes) * (ranks - 1) / microseconds / 1e3;
  if (options.json) {
    fmt::print("{}\n", bench::JsonLine()
                           .add("method", name)
                           .add("ranks", ranks)
                           .add("blocks", blocks)
                           .add("bytes", bytes)
                           .add("us", microseconds)
                           .add("gbps", rate)
                           .add("idle", idle)
                           .add("wrong", std::uint64_t{wrong})
                           .text());
  } else {
    fmt::print("{:>12} {:>7} {:>10.1f} {:>9.1f} {:>9.1f} {:>7}  {}\n", bytes, blocks, microseconds, rate, 100 * idle,
               wrong, name);
  }
  std::fflush(stdout);
}

void runRank(const Options& options, ProcessGroup& group) {
  const auto backend = perf::makeGpuBackend(group.localRank());
  Sender sender(group.connect(), *std::max_element(options.sizes.begin(), options.sizes.end()),
                *std::max_element(options.blocks.begin(), options.blocks.end()));
  std::vector<CopyMethod> methods;
  for (const int threads : options.threads) {
    for (const auto chunkBytes : options.chunkSizes) methods.push_back(stores(threads, chunkBytes));
  }
  const auto bulk = bulkMethods();
  methods.insert(methods.end(), bulk.begin(), options.allShapes ? bulk.end() : bulk.begin() + 1);
  if (sender.rank() == 0 && !options.json) {
    fmt::print(
        "# {} GPUs, each sends to all others at once; {}; {} calls per measurement, median of {}, maximum over the "
        "GPUs\n",
        sender.ranks(), backend->description(), options.timing.calls, options.timing.repeats);
    fmt::print("# {:>10} {:>7} {:>10} {:>9} {:>9} {:>7}\n", "to each (B)", "blocks", "time (us)", "GB/s", "idle (%)",
               "#wrong");
  }
  unsigned long long totalWrong = 0;
  for (const std::size_t bytes : options.sizes) {
    for (const int blocks : options.blocks) {
      for (const CopyMethod& method : methods) {
        const AllToAllArgs args = sender.args(bytes);
        const perf::Call call = [&](cudaStream_t stream) { method.enqueue(args, blocks, stream); };
        unsigned long long wrong = 0;
        for (const auto found : sender.gather(sender.check(*backend, call, bytes))) wrong += found;
        const auto times = sender.gather(backend->time(call, options.timing, [&] { sender.barrier(); }));
        const auto idle = sender.gather(sender.idleFraction(*backend, blocks));
        totalWrong += wrong;
        if (sender.rank() == 0)
          print(options, method.name, sender.ranks(), blocks, bytes, *std::max_element(times.begin(), times.end()),
                *std::max_element(idle.begin(), idle.end()), wrong);
      }
    }
  }
  sender.barrier();  // no rank frees memory that a peer may still write
  if (totalWrong != 0) throw Error(fmt::format("{} wrong words", totalWrong), ErrorCode::InternalError);
}

}  // namespace

}  // namespace mscclpp::copybench

int main(int argc, char** argv) {
  using namespace mscclpp;
  return perf::mainOnGpus<copybench::Options>(
      "copy", argc, argv, copybench::parse,
      [](const copybench::Options& options, ProcessGroup& group) { copybench::runRank(options, group); });
}
