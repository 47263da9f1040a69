// The compiled collectives: scratch, selection of the algorithm, argument checks.
#include "mscclpp/kernels/collectives.hpp"

#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "all_reduce_algorithms.hpp"
#include "all_reduce_tuning.hpp"
#include "backend.hpp"
#include "host/base/process_identity.hpp"
#include "host/communicator/group_setup.hpp"
#include "mscclpp/collective/all_reduce.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/base/logger.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"

namespace mscclpp {

namespace {

using namespace kernels;

/// The scratch of an algorithm, which is the same for all element types and operators.
template <class F>
void visitScratch(std::size_t algorithm, int ranks, const PipelineShape& pipeline, const F& f) {
  const auto visit = [&]<std::size_t i>() {
    constexpr AllReduceAlgorithm candidate = allReduceAlgorithms[i];
    using Example = AllReduce<float, Sum, candidate.config>;
    if (i == algorithm) f(Example::scratchFor(candidate.maxBytes / sizeof(float), ranks, pipeline));
  };
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    (visit.template operator()<i>(), ...);
  }
  (std::make_index_sequence<allReduceAlgorithms.size()>{});
}

/// The state of one algorithm: a part of the window, and its epochs.
struct Region {
  std::size_t algorithm;
  std::size_t offset;
  std::size_t bytes;
  int initialByte;
  std::uint64_t firstEpoch;
  std::size_t counters;       ///< offset of the words in the window that start at the epoch
  std::size_t countersBytes;  ///< of these words
  PipelineShape pipeline;
  std::vector<std::byte*> window;
  std::shared_ptr<void> epochs;
};

Region makeRegion(std::size_t index, std::size_t offset, int ranks, const PipelineTuning& tuning) {
  const PipelineShape pipeline{tuning.tilePacks, tuning.blocks, 2 * allReduceAlgorithms[index].config.lookahead};
  Region region{index, offset, 0, 0, 0, 0, 0, pipeline, {}, {}};
  visitScratch(index, ranks, pipeline, [&](const auto& scratch) {
    region.bytes = scratch.windowBytes();
    region.initialByte = scratch.initialByte;
    region.firstEpoch = scratch.firstEpoch;
    if constexpr (requires { scratch.countersOffset(); }) {
      region.counters = scratch.countersOffset();
      region.countersBytes = scratch.countersBytes();
    }
  });
  return region;
}

constexpr std::size_t regionAlignment = 4096;

[[noreturn]] void throwInvalidUsage(const std::string& why) {
  throw Error("all-reduce: " + why, ErrorCode::InvalidUsage);
}

}  // namespace

class Collectives::State {
 public:
  State(std::shared_ptr<Communicator> communicator, DeviceType deviceType, Algorithms algorithms)
      : communicator_(std::move(communicator)),
        rank_(communicator_->bootstrap()->getRank()),
        ranks_(communicator_->bootstrap()->getNranks()),
        onGpu_(deviceType == DeviceType::GPU),
        backend_(onGpu_ ? gpuBackend() : cpuBackend()),
        monitor_(*communicator_, deviceType) {
    monitor_.setTeamIsJob();
    if (ranks_ > maxTeamSize) {
      throwInvalidUsage("a team has at most " + std::to_string(maxTeamSize) + " ranks, the communicator has " +
                        std::to_string(ranks_) + ": split it");
    }
    const detail::GroupSetup setup(*communicator_);
    lineStoresAtomic_ = backend_.areLineStoresAtomic(*communicator_->bootstrap());
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < allReduceAlgorithms.size(); ++i) {
      const AllReduceAlgorithm& algorithm = allReduceAlgorithms[i];
      if (!isAvailable(algorithm)) continue;
      if (algorithms == Algorithms::Selected && !isInTuningTable(algorithm.name)) continue;
      regions_.push_back(makeRegion(i, bytes, ranks_, pipelineTuning()));
      bytes += roundUp(regions_.back().bytes, regionAlignment);
    }
    memory_.emplace(*communicator_, bytes, deviceType);
    for (Region& region : regions_) {
      for (int r = 0; r < ranks_; ++r)
        region.window.push_back(static_cast<std::byte*>(memory_->peer(r)) + region.offset);
      // The memory is zero-filled: pages that no call uses stay untouched.
      if (region.initialByte != 0) backend_.fill(local(region), region.initialByte, region.bytes);
      region.epochs = backend_.allocate(epochWords * sizeof(std::uint64_t));
      setEpoch(region, region.firstEpoch);
    }
    communicator_->bootstrap()->barrier();  // no rank may send before every window is initialised
    if (!env()->npkitDumpDir.empty()) {
      environmentTrace_ = makeTrace({});
      record(nullptr);
    }
  }
  ~State() {
    if (environmentTrace_ && owner_.isCurrent()) writeEnvironmentTrace();
  }

  void allReduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, CUstream_st* stream,
                 const std::string& name) {
    if (monitor_.failed()) monitor_.check();
    if (sizeOf(type) == 0) throwInvalidUsage(std::string("data type ") + nameOf(type) + " is not supported");
    if (count == 0) return;
    if (input == nullptr || output == nullptr) {
      throwInvalidUsage(std::string(input == nullptr ? "input" : "output") + " is null and count is not 0");
    }
    if (count > std::numeric_limits<std::size_t>::max() / 2 / sizeOf(type)) {
      throwInvalidUsage("count is larger than the address space; was it a negative number?");
    }
    for (const void* buffer : {input, static_cast<const void*>(output)}) {
      if (reinterpret_cast<std::uintptr_t>(buffer) % sizeOf(type) != 0) {
        throwInvalidUsage(std::string(buffer == input ? "input" : "output") + " must be aligned to its elements of " +
                          std::to_string(sizeOf(type)) + " bytes");
      }
    }
    const std::size_t bytes = count * sizeOf(type);
    Region& region = name.empty() ? select(bytes, type, op) : findOrThrow(name, bytes, type, op);
    const AllReduceFunction plain = backend_.findAllReduce(region.algorithm, type, op, ranks_);
    const AllReduceFunction traced =
        trace_ ? backend_.findTracedAllReduce(region.algorithm, type, op, ranks_) : AllReduceFunction{nullptr};
    const AllReduceFunction function = traced != nullptr ? traced : plain;
    if (function == nullptr) throwInvalidUsage(std::string("operator ") + nameOf(op) + " is not supported");
    const AllReduceConfig& config = allReduceAlgorithms[region.algorithm].config;
    const LaunchShape shape = isPipelined(config.protocol)
                                  ? LaunchShape{pipelineTuning().blocks, pipelineTuning().threads}
                                  : packetShape(config, ceilDivide(bytes, sizeof(Word128)), ranks_);
    const std::chrono::nanoseconds timeout = env()->waitTimeout;
    const BoundedWait wait(monitor_.deviceControl(), static_cast<std::uint64_t>(timeout.count()));
    const TraceId id = traceIdOf(region.algorithm);
    const auto track = trace_ ? trace_->trackOfThisThread("calls") : nullptr;
    if (track) track->begin(id, bytes);
    const int error = function({rank_, ranks_, region.window.data(), static_cast<std::uint64_t*>(region.epochs.get()),
                                allReduceAlgorithms[region.algorithm].maxBytes, region.pipeline, wait, input, output,
                                count, shape, stream, trace_ ? trace_->buffer() : TraceBuffer{}});
    if (track) track->end(id);
    if (error != 0) throw CudaError("all-reduce: the launch failed", error);
    if (!onGpu_ && monitor_.failed()) monitor_.check();
  }

  void check() const { monitor_.check(); }

  std::vector<std::string> algorithms() const {
    std::vector<std::string> names;
    for (const Region& region : regions_) names.emplace_back(allReduceAlgorithms[region.algorithm].name);
    return names;
  }

  Region& select(std::size_t bytes, DataType type, ReduceOp op) {
    const auto pick = [&](const auto& choices) -> Region& {
      for (const TuningEntry& choice : choices) {
        if (bytes > choice.maxBytes) continue;
        Region* region = find(choice.algorithm);
        if (region != nullptr && backend_.findAllReduce(region->algorithm, type, op, ranks_) != nullptr) return *region;
      }
      return regions_.back();
    };
    return onGpu_ ? pick(gpuTuningTable) : pick(cpuTuningTable);
  }

  bool supports(const std::string& name, std::size_t bytes, DataType type, ReduceOp op) {
    const Region* region = find(name);
    return region != nullptr && !isTooLong(allReduceAlgorithms[region->algorithm], bytes) &&
           backend_.findAllReduce(region->algorithm, type, op, ranks_) != nullptr;
  }

  std::shared_ptr<Trace> makeTrace(TraceOptions options) const {
    options.rank = rank_;
    options.device = onGpu_ ? DeviceType::GPU : DeviceType::CPU;
    options.launchClockSync = backend_.launchClockSync;
    return std::make_shared<Trace>(std::move(options));
  }

  void record(std::shared_ptr<Trace> trace) {
    trace_ = trace ? std::move(trace) : environmentTrace_;
    if (!trace_) return;
    for (std::size_t i = 0; i < allReduceAlgorithms.size(); ++i) {
      trace_->name(traceIdOf(i), allReduceAlgorithms[i].name, "bytes");
    }
  }

  bool recordsStages(DataType type, ReduceOp op) const {
    return backend_.findTracedAllReduce(fallbackAlgorithm, type, op, ranks_) != nullptr;
  }

  void setEpochs(std::uint64_t epoch) {
    for (Region& region : regions_) setEpoch(region, epoch);
    communicator_->bootstrap()->barrier();
  }

 private:
  /// Writes this rank's trace to the directory named by the environment, without overwriting existing files.
  void writeEnvironmentTrace() const noexcept {
    try {
      const std::filesystem::path folder = env()->npkitDumpDir;
      const std::string name = "trace_rank_" + std::to_string(rank_);
      std::filesystem::path path = folder / (name + ".json");
      for (int i = 2; std::filesystem::exists(path); ++i) path = folder / (name + "_" + std::to_string(i) + ".json");
      writeTrace(path.string(), {environmentTrace_.get()});
    } catch (const std::exception& error) {
      logMessage(LogLevel::Warn, LogSubsystem::Algo,
                 "cannot write the trace to MSCCLPP_NPKIT_DUMP_DIR: ", error.what());
    }
  }

  static TraceId traceIdOf(std::size_t algorithm) {
    return static_cast<TraceId>(static_cast<std::size_t>(TraceId::Algorithm) + algorithm);
  }
  const PipelineTuning& pipelineTuning() const { return onGpu_ ? gpuPipeline : cpuPipeline; }
  std::byte* local(const Region& region) const { return region.window[static_cast<std::size_t>(rank_)]; }

  bool isAvailable(const AllReduceAlgorithm& algorithm) const {
    if (algorithm.config.protocol == Protocol::LL128 && !lineStoresAtomic_) return false;
    return onGpu_ || algorithm.backends == Backends::CpuAndGpu;
  }

  bool isInTuningTable(std::string_view name) const {
    const auto contains = [&](const auto& choices) {
      for (const TuningEntry& choice : choices) {
        if (name == choice.algorithm) return true;
      }
      return false;
    };
    return name == allReduceAlgorithms[fallbackAlgorithm].name ||
           (onGpu_ ? contains(gpuTuningTable) : contains(cpuTuningTable));
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

  Region& findOrThrow(const std::string& name, std::size_t bytes, DataType type, ReduceOp op) {
    Region* region = find(name);
    if (region == nullptr) {
      std::string known;
      for (const std::string& each : algorithms()) known += (known.empty() ? "" : ", ") + each;
      throwInvalidUsage("unknown algorithm \"" + name + "\"; available: " + known);
    }
    const AllReduceAlgorithm& algorithm = allReduceAlgorithms[region->algorithm];
    if (isTooLong(algorithm, bytes)) {
      throwInvalidUsage(name + " supports messages of up to " + std::to_string(algorithm.maxBytes) + " bytes, not " +
                        std::to_string(bytes) + ": do not name an algorithm, or use " +
                        allReduceAlgorithms[fallbackAlgorithm].name);
    }
    if (backend_.findAllReduce(region->algorithm, type, op, ranks_) == nullptr) {
      throwInvalidUsage(name + " is not compiled for data type " + nameOf(type) + " and operator " + nameOf(op) +
                        ": do not name an algorithm");
    }
    return *region;
  }

  void setEpoch(Region& region, std::uint64_t epoch) {
    const std::vector<std::uint64_t> words(epochWords, epoch);
    backend_.upload(region.epochs.get(), words.data(), words.size() * sizeof(std::uint64_t));
    // The counters of a pipeline never decrease: they start at the epoch.
    const std::vector<std::uint64_t> counters(region.countersBytes / sizeof(std::uint64_t), epoch);
    if (epoch != 0 && !counters.empty()) {
      backend_.upload(local(region) + region.counters, counters.data(), counters.size() * sizeof(std::uint64_t));
    }
  }

  const detail::OwnerProcess owner_;  // a forked child writes no trace
  std::shared_ptr<Communicator> communicator_;
  int rank_;
  int ranks_;
  bool onGpu_;
  bool lineStoresAtomic_ = false;
  const Backend& backend_;
  WaitMonitor monitor_;
  std::optional<SymmetricMemory> memory_;
  std::vector<Region> regions_;
  std::shared_ptr<Trace> environmentTrace_;  // if the environment asks for one
  std::shared_ptr<Trace> trace_;             // null: calls are not recorded
};

Collectives::Collectives(std::shared_ptr<Communicator> communicator, DeviceType deviceType, Algorithms algorithms) {
  if (communicator == nullptr) throw Error("Collectives: the communicator is null", ErrorCode::InvalidUsage);
  if (deviceType != DeviceType::GPU && deviceType != DeviceType::CPU) {
    throw Error("Collectives: deviceType must be DeviceType::GPU or DeviceType::CPU", ErrorCode::InvalidUsage);
  }
  state_ = std::make_unique<State>(std::move(communicator), deviceType, algorithms);
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

std::string Collectives::selectedAlgorithm(std::size_t count, DataType type, ReduceOp op) const {
  return kernels::allReduceAlgorithms[state_->select(count * sizeOf(type), type, op).algorithm].name;
}

bool Collectives::supports(const std::string& algorithm, std::size_t count, DataType type, ReduceOp op) const {
  return state_->supports(algorithm, count * sizeOf(type), type, op);
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
