// Scratch, choice and checks of the compiled collectives.
#include "mscclpp/kernels/collectives.hpp"

#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>

#include "all_reduce_algorithms.hpp"
#include "all_reduce_tuning.hpp"
#include "backend.hpp"
#include "mscclpp/collective/all_reduce_packets.hpp"
#include "mscclpp/host/env.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/logger.hpp"
#include "mscclpp/host/symmetric_memory.hpp"
#include "mscclpp/host/wait_monitor.hpp"

namespace mscclpp {

namespace {

using namespace kernels;

/// Calls f(scratch) with the scratch of an algorithm: PacketScratch of its protocol and pattern, or PipelineScratch.
template <class F>
void visitScratch(const AllReduceAlgorithm& algorithm, int ranks, const PipelineTuning& tuning, const F& f) {
  const AllReduceConfig& config = algorithm.config;
  const std::size_t capacity = algorithm.maxBytes / sizeof(Word16);
  const auto packets = [&]<Protocol protocol>() {
    using P = typename PackProtocolOf<protocol>::Type;
    if (config.pattern == Pattern::OneShot) {
      f(PacketScratch<P, Pattern::OneShot>{capacity, ranks});
    } else {
      f(PacketScratch<P, Pattern::TwoShot>{capacity, ranks});
    }
  };
  switch (config.protocol) {
    case Protocol::LL8:
      return packets.template operator()<Protocol::LL8>();
    case Protocol::LL16:
      return packets.template operator()<Protocol::LL16>();
    case Protocol::LL128:
      return packets.template operator()<Protocol::LL128>();
    case Protocol::LL128Ordered:
      return packets.template operator()<Protocol::LL128Ordered>();
    case Protocol::Sentinel:
      return packets.template operator()<Protocol::Sentinel>();
    case Protocol::Simple:
      return f(PipelineScratch{tuning.tilePacks, ranks, tuning.blocks, 2 * config.lookahead});
  }
}

/// What one algorithm owns: a part of the window, and its epochs.
struct Region {
  std::size_t algorithm;
  std::size_t offset;
  std::size_t bytes;
  int initialByte;
  std::uint64_t firstEpoch;
  std::size_t capacityPacks;
  PipelineScratch pipeline;
  std::vector<std::byte*> window;
  std::shared_ptr<void> epochs;
};

Region describe(std::size_t index, std::size_t offset, int ranks, const PipelineTuning& tuning) {
  Region region{index, offset, 0, 0, 0, 0, {}, {}, {}};
  visitScratch(allReduceAlgorithms[index], ranks, tuning, [&](const auto& scratch) {
    region.bytes = scratch.windowBytes();
    region.initialByte = scratch.initialByte;
    region.firstEpoch = scratch.firstEpoch;
    if constexpr (requires { scratch.capacityPacks; }) {
      region.capacityPacks = scratch.capacityPacks;
    } else {
      region.pipeline = scratch;
    }
  });
  return region;
}

constexpr std::size_t regionAlignment = 4096;

[[noreturn]] void refuse(const std::string& why) {
  throw Error("all-reduce: " + why, ErrorCode::InvalidUsage);
}

}  // namespace

class Collectives::State {
 public:
  State(std::shared_ptr<Communicator> communicator, DeviceType where, Algorithms algorithms)
      : communicator_(std::move(communicator)),
        rank_(communicator_->bootstrap()->getRank()),
        ranks_(communicator_->bootstrap()->getNranks()),
        onGpu_(where == DeviceType::GPU),
        backend_(onGpu_ ? gpuBackend() : cpuBackend()),
        monitor_(*communicator_, where) {
    if (ranks_ > maxTeamSize) {
      refuse("teams have up to " + std::to_string(maxTeamSize) + " ranks, this one has " + std::to_string(ranks_) +
             ": split the communicator");
    }
    linesStayWhole_ = backend_.linesStayWhole(*communicator_->bootstrap());
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < allReduceAlgorithms.size(); ++i) {
      const AllReduceAlgorithm& algorithm = allReduceAlgorithms[i];
      if (!isPossible(algorithm)) continue;
      if (algorithms == Algorithms::Chosen && !isChosen(algorithm.name)) continue;
      regions_.push_back(describe(i, bytes, ranks_, pipelineTuning()));
      bytes += roundUp(regions_.back().bytes, regionAlignment);
    }
    memory_.emplace(*communicator_, bytes, where);
    for (Region& region : regions_) {
      for (int r = 0; r < ranks_; ++r)
        region.window.push_back(static_cast<std::byte*>(memory_->peer(r)) + region.offset);
      backend_.fill(local(region), region.initialByte, region.bytes);
      region.epochs = backend_.allocate(maxBlocks * sizeof(std::uint64_t));
      setEpoch(region, region.firstEpoch);
    }
    communicator_->bootstrap()->barrier();  // nobody sends before every window is ready
    if (!env()->npkitDumpDir.empty()) {
      kept_ = makeTrace({});
      record(nullptr);
    }
  }
  ~State() {
    if (kept_) writeKept();
  }

  void allReduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, CUstream_st* stream,
                 const std::string& name) {
    if (monitor_.failed()) monitor_.check();
    if (sizeOf(type) == 0) refuse(std::string("data type ") + nameOf(type) + " is not supported");
    if (count == 0) return;
    if (input == nullptr || output == nullptr) {
      refuse(std::string(input == nullptr ? "input" : "output") + " is null and count is not 0");
    }
    if (count > std::numeric_limits<std::size_t>::max() / 2 / sizeOf(type)) {
      refuse("count is larger than any memory; was it a negative number?");
    }
    for (const void* buffer : {input, static_cast<const void*>(output)}) {
      if (reinterpret_cast<std::uintptr_t>(buffer) % sizeOf(type) != 0) {
        refuse(std::string(buffer == input ? "input" : "output") + " must be aligned to its elements, which are " +
               std::to_string(sizeOf(type)) + " bytes long");
      }
    }
    const std::size_t bytes = count * sizeOf(type);
    Region& region = name.empty() ? choose(bytes, type, op) : named(name, bytes, type, op);
    const AllReduceFunction plain = backend_.findAllReduce(region.algorithm, type, op, ranks_);
    const AllReduceFunction traced =
        trace_ ? backend_.findTracedAllReduce(region.algorithm, type, op, ranks_) : AllReduceFunction{nullptr};
    const AllReduceFunction function = traced != nullptr ? traced : plain;
    if (function == nullptr) refuse(std::string("operator ") + nameOf(op) + " is not supported");
    const AllReduceConfig& config = allReduceAlgorithms[region.algorithm].config;
    const LaunchShape shape = config.schedule == Schedule::Pipelined
                                  ? LaunchShape{pipelineTuning().blocks, pipelineTuning().threads}
                                  : packetShape(config, ceilDivide(bytes, sizeof(Word16)), ranks_);
    const std::chrono::nanoseconds timeout = env()->waitTimeout;
    const BoundedWait wait(monitor_.deviceControl(), static_cast<std::uint64_t>(timeout.count()));
    const TraceId id = traceIdOf(region.algorithm);
    if (trace_) calls_->begin(id, bytes);
    const int error = function({rank_, ranks_, region.window.data(), static_cast<std::uint64_t*>(region.epochs.get()),
                                region.capacityPacks, region.pipeline, wait, input, output, count, shape, stream,
                                trace_ ? trace_->buffer() : TraceBuffer{}});
    if (trace_) calls_->end(id);
    if (error != 0) throw CudaError("all-reduce: the launch failed", error);
    if (!onGpu_ && monitor_.failed()) monitor_.check();
  }

  void check() const { monitor_.check(); }

  std::vector<std::string> algorithms() const {
    std::vector<std::string> names;
    for (const Region& region : regions_) names.emplace_back(allReduceAlgorithms[region.algorithm].name);
    return names;
  }

  Region& choose(std::size_t bytes, DataType type, ReduceOp op) {
    const auto pick = [&](const auto& choices) -> Region& {
      for (const SizeChoice& choice : choices) {
        if (bytes > choice.maxBytes) continue;
        Region* region = find(choice.algorithm);
        if (region != nullptr && backend_.findAllReduce(region->algorithm, type, op, ranks_) != nullptr) return *region;
      }
      return regions_.back();
    };
    return onGpu_ ? pick(gpuChoices) : pick(cpuChoices);
  }

  bool serves(const std::string& name, std::size_t bytes, DataType type, ReduceOp op) {
    const Region* region = find(name);
    return region != nullptr && !isTooLong(allReduceAlgorithms[region->algorithm], bytes) &&
           backend_.findAllReduce(region->algorithm, type, op, ranks_) != nullptr;
  }

  std::shared_ptr<Trace> makeTrace(TraceOptions options) const {
    options.rank = rank_;
    options.device = onGpu_ ? DeviceType::GPU : DeviceType::CPU;
    options.answerClock = backend_.answerClock;
    return std::make_shared<Trace>(std::move(options));
  }

  void record(std::shared_ptr<Trace> trace) {
    trace_ = trace ? std::move(trace) : kept_;
    if (!trace_) return;
    for (std::size_t i = 0; i < allReduceAlgorithms.size(); ++i) {
      trace_->name(traceIdOf(i), allReduceAlgorithms[i].name, "bytes");
    }
    calls_ = trace_->track("calls");
  }

  bool recordsStages(DataType type, ReduceOp op) const {
    return backend_.findTracedAllReduce(fallbackAlgorithm, type, op, ranks_) != nullptr;
  }

  void setEpochs(std::uint64_t epoch) {
    for (Region& region : regions_) setEpoch(region, epoch);
    communicator_->bootstrap()->barrier();
  }

 private:
  /// The trace of this rank, into the folder that the environment names. A file that is there already stays.
  void writeKept() const noexcept {
    try {
      const std::filesystem::path folder = env()->npkitDumpDir;
      const std::string name = "trace_rank_" + std::to_string(rank_);
      std::filesystem::path path = folder / (name + ".json");
      for (int i = 2; std::filesystem::exists(path); ++i) path = folder / (name + "_" + std::to_string(i) + ".json");
      writeTrace(path.string(), {kept_.get()});
    } catch (const std::exception& error) {
      logMessage(LogLevel::Warn, LogSubsystem::Algo, "no trace for MSCCLPP_NPKIT_DUMP_DIR: ", error.what());
    }
  }

  static TraceId traceIdOf(std::size_t algorithm) {
    return static_cast<TraceId>(static_cast<std::size_t>(TraceId::Algorithm) + algorithm);
  }
  const PipelineTuning& pipelineTuning() const { return onGpu_ ? gpuPipeline : cpuPipeline; }
  std::byte* local(const Region& region) const { return region.window[static_cast<std::size_t>(rank_)]; }

  bool isPossible(const AllReduceAlgorithm& algorithm) const {
    if (algorithm.config.protocol == Protocol::LL128 && !linesStayWhole_) return false;
    return onGpu_ ? algorithm.onGpu : algorithm.onCpu;
  }

  bool isChosen(std::string_view name) const {
    const auto among = [&](const auto& choices) {
      for (const SizeChoice& choice : choices) {
        if (name == choice.algorithm) return true;
      }
      return false;
    };
    return name == allReduceAlgorithms[fallbackAlgorithm].name || (onGpu_ ? among(gpuChoices) : among(cpuChoices));
  }

  static bool isTooLong(const AllReduceAlgorithm& algorithm, std::size_t bytes) {
    return algorithm.maxBytes != noLimit && bytes > algorithm.maxBytes;
  }

  Region* find(std::string_view name) {
    for (Region& region : regions_) {
      if (name == allReduceAlgorithms[region.algorithm].name) return &region;
    }
    return nullptr;
  }

  Region& named(const std::string& name, std::size_t bytes, DataType type, ReduceOp op) {
    Region* region = find(name);
    if (region == nullptr) {
      std::string known;
      for (const std::string& each : algorithms()) known += (known.empty() ? "" : ", ") + each;
      refuse("no algorithm \"" + name + "\" here; there are: " + known);
    }
    const AllReduceAlgorithm& algorithm = allReduceAlgorithms[region->algorithm];
    if (isTooLong(algorithm, bytes)) {
      refuse(name + " takes messages of up to " + std::to_string(algorithm.maxBytes) + " bytes, not " +
             std::to_string(bytes) + ": leave the algorithm to the library, or name " +
             allReduceAlgorithms[fallbackAlgorithm].name);
    }
    if (backend_.findAllReduce(region->algorithm, type, op, ranks_) == nullptr) {
      refuse(name + " is not compiled for data type " + nameOf(type) + " and operator " + nameOf(op) +
             ": leave the algorithm to the library");
    }
    return *region;
  }

  void setEpoch(Region& region, std::uint64_t epoch) {
    const std::vector<std::uint64_t> words(maxBlocks, epoch);
    backend_.upload(region.epochs.get(), words.data(), words.size() * sizeof(std::uint64_t));
    // The counters of a pipeline only rise: they start where the epochs start.
    if (allReduceAlgorithms[region.algorithm].config.schedule == Schedule::Pipelined && epoch != 0) {
      const std::size_t offset = region.pipeline.countersOffset();
      const std::vector<std::uint64_t> counters((region.bytes - offset) / sizeof(std::uint64_t), epoch);
      backend_.upload(local(region) + offset, counters.data(), counters.size() * sizeof(std::uint64_t));
    }
  }

  std::shared_ptr<Communicator> communicator_;
  int rank_;
  int ranks_;
  bool onGpu_;
  bool linesStayWhole_ = false;
  const Backend& backend_;
  WaitMonitor monitor_;
  std::optional<SymmetricMemory> memory_;
  std::vector<Region> regions_;
  std::shared_ptr<Trace> kept_;   // if the environment asks for one
  std::shared_ptr<Trace> trace_;  // null: calls are not recorded
  std::shared_ptr<TraceTrack> calls_;
};

Collectives::Collectives(std::shared_ptr<Communicator> communicator, DeviceType where, Algorithms algorithms) {
  if (communicator == nullptr) throw Error("Collectives: the communicator is null", ErrorCode::InvalidUsage);
  if (where != DeviceType::GPU && where != DeviceType::CPU) {
    throw Error("Collectives: where must be DeviceType::GPU or DeviceType::CPU", ErrorCode::InvalidUsage);
  }
  state_ = std::make_unique<State>(std::move(communicator), where, algorithms);
}
Collectives::~Collectives() = default;

void Collectives::allReduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                            CUstream_st* stream, const std::string& algorithm) {
  state_->allReduce(input, output, count, type, op, stream, algorithm);
}

void Collectives::check() const {
  state_->check();
}

std::vector<std::string> Collectives::algorithms() const {
  return state_->algorithms();
}

std::string Collectives::chosen(std::size_t count, DataType type, ReduceOp op) const {
  return kernels::allReduceAlgorithms[state_->choose(count * sizeOf(type), type, op).algorithm].name;
}

bool Collectives::serves(const std::string& algorithm, std::size_t count, DataType type, ReduceOp op) const {
  return state_->serves(algorithm, count * sizeOf(type), type, op);
}

std::shared_ptr<Trace> Collectives::makeTrace(TraceOptions options) const {
  return state_->makeTrace(std::move(options));
}

void Collectives::record(std::shared_ptr<Trace> trace) {
  state_->record(std::move(trace));
}

bool Collectives::recordsStages(DataType type, ReduceOp op) const {
  return state_->recordsStages(type, op);
}

void Collectives::setEpoch(std::uint64_t epoch) {
  state_->setEpochs(epoch);
}

}  // namespace mscclpp
