// The benchmark of one rank: times and checks every size with every algorithm and with NCCL.
#include "measure.hpp"

#include <algorithm>
#include <numeric>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "nccl.hpp"
#include "reference.hpp"
#include "report.hpp"

namespace mscclpp::perf {

namespace {

/// An implementation of the collective that can be timed.
struct Implementation {
  std::string name;
  std::function<void(const void* input, void* output, std::size_t count, CUstream_st* stream)> run;
  std::function<bool(std::size_t bytes)> supports;
  bool roundsEachAddition;
  std::function<void()> check;
  bool canRecord;
  std::shared_ptr<void> input = nullptr;  ///< null: the common buffers
  std::shared_ptr<void> output = nullptr;
};

class RankGroup {
 public:
  explicit RankGroup(Bootstrap& bootstrap) : bootstrap_(bootstrap) {}
  int rank() const { return bootstrap_.getRank(); }
  int size() const { return bootstrap_.getNranks(); }
  void barrier() const { bootstrap_.barrier(); }
  template <class T>
  std::vector<T> gather(T mine) const {
    std::vector<T> all(static_cast<std::size_t>(size()));
    all[static_cast<std::size_t>(rank())] = mine;
    bootstrap_.allGather(all.data(), sizeof(T));
    return all;
  }

 private:
  Bootstrap& bootstrap_;
};

std::vector<Implementation> implementations(const Options& options, Collectives& collectives, Nccl* nccl,
                                            std::size_t maxBytes) {
  std::vector<Implementation> all;
  std::vector<std::string> names = options.algorithms;
  if (names.empty()) names.emplace_back();
  if (names == std::vector<std::string>{"all"}) names = collectives.algorithms();
  for (const std::string& name : names) {
    const auto run = [&collectives, &options, name](const void* in, void* out, std::size_t count, CUstream_st* stream) {
      collectives.allReduce(in, out, count, options.type, options.op, stream, name);
    };
    const auto supports = [&collectives, &options, name](std::size_t bytes) {
      return name.empty() || collectives.supports(name, bytes / sizeOf(options.type), options.type, options.op);
    };
    all.push_back({.name = name,
                   .run = run,
                   .supports = supports,
                   .roundsEachAddition = false,
                   .check = [&collectives] { collectives.check(); },
                   .canRecord = true});
  }
  if (nccl != nullptr) {
    const auto run = [nccl, &options](const void* in, void* out, std::size_t count, CUstream_st* stream) {
      nccl->allReduce(in, out, count, options.type, options.op, stream);
    };
    Implementation plain{.name = "NCCL",
                         .run = run,
                         .supports = [](std::size_t) { return true; },
                         .roundsEachAddition = true,
                         .check = [] {},
                         .canRecord = false};
    all.push_back(plain);
    if (auto input = nccl->allocateWindow(maxBytes)) {
      Implementation symmetric = plain;
      symmetric.name = "NCCL symmetric";
      symmetric.input = input;
      symmetric.output = nccl->allocateWindow(maxBytes);
      all.push_back(symmetric);
    }
  }
  return all;
}

void checkNames(const std::vector<std::string>& wanted, const std::vector<std::string>& offered) {
  for (const std::string& name : wanted) {
    if (name == "all" || std::find(offered.begin(), offered.end(), name) != offered.end()) continue;
    std::string known = "all";
    for (const std::string& each : offered) known += ", " + each;
    throw Error("unknown algorithm \"" + name + "\"; known: " + known, ErrorCode::InvalidUsage);
  }
}

/// The trace of a run: additional calls that are not timed.
class TraceRecording {
 public:
  TraceRecording(const Options& options, const RankGroup& group, Collectives& collectives, Backend& backend)
      : options_(options),
        group_(group),
        collectives_(collectives),
        backend_(backend),
        trace_(collectives.makeTrace({.eventsPerRecorder = 1 << 14})),
        discardedTrace_(collectives.makeTrace({.eventsPerRecorder = 2})) {
    if (!collectives.recordsStages(options.type, options.op)) {
      throw Error(
          std::string("--trace: the stages of an all-reduce are recorded for float32 and bfloat16 with operator "
                      "sum, not for ") +
              nameOf(options.type) + " with " + nameOf(options.op),
          ErrorCode::InvalidUsage);
    }
  }

  void add(const Call& call) {
    // The first call of a variant loads its kernel; it is not recorded.
    runTraced(call, discardedTrace_, 1);
    runTraced(call, trace_, options_.tracedCalls);
    trace_->collect();
  }

  void write(Bootstrap& bootstrap, const Report* report) {
    writeTrace(options_.traceFile, *trace_, bootstrap);
    const auto lost = group_.gather(trace_->lost());
    if (report) report->printTraceSummary(std::accumulate(lost.begin(), lost.end(), std::uint64_t{0}));
  }

 private:
  void runTraced(const Call& call, const std::shared_ptr<Trace>& trace, int calls) {
    collectives_.record(trace);
    group_.barrier();
    backend_.runOnce([&](CUstream_st* stream) {
      for (int i = 0; i < calls; ++i) call(stream);
    });
    collectives_.record(nullptr);
  }

  const Options& options_;
  const RankGroup& group_;
  Collectives& collectives_;
  Backend& backend_;
  std::shared_ptr<Trace> trace_;
  std::shared_ptr<Trace> discardedTrace_;
};

}  // namespace

std::size_t measureAllReduce(const Options& options, std::shared_ptr<Bootstrap> bootstrap, Backend& backend,
                             bool onGpu) {
  const RankGroup group(*bootstrap);
  auto communicator = std::make_shared<Communicator>(bootstrap);
  Collectives collectives(
      communicator, onGpu ? DeviceType::GPU : DeviceType::CPU,
      options.algorithms.empty() ? Collectives::Algorithms::Selected : Collectives::Algorithms::All);
  checkNames(options.algorithms, collectives.algorithms());
  std::unique_ptr<TraceRecording> recording;
  if (!options.traceFile.empty()) recording = std::make_unique<TraceRecording>(options, group, collectives, backend);
  std::unique_ptr<Nccl> nccl;
  if (options.nccl) nccl = std::make_unique<Nccl>(options.ncclLibrary, *bootstrap);

  const std::size_t elementBytes = sizeOf(options.type);
  const std::size_t maxBytes = *std::max_element(options.sizes.begin(), options.sizes.end());
  const auto sharedInput = backend.allocate(maxBytes);
  const auto sharedOutput = backend.allocate(maxBytes);
  std::unique_ptr<Report> report;
  if (group.rank() == 0) {
    report = std::make_unique<Report>(options, group.size(),
                                      backend.description() + (nccl ? ", NCCL " + nccl->version() : ""));
  }

  std::size_t totalWrong = 0;
  std::size_t measured = 0;
  const auto all = implementations(options, collectives, nccl.get(), maxBytes);
  for (std::size_t s = 0; s < options.sizes.size(); ++s) {
    const std::size_t count = options.sizes[s] / elementBytes;
    const std::size_t bytes = count * elementBytes;
    if (report) report->progress(s, options.sizes.size(), bytes);
    const std::uint64_t seed = 1000 + s;
    const auto inputBytes = makeInput(options.type, options.op, seed, group.rank(), count);
    for (const Implementation& implementation : all) {
      if (!implementation.supports(bytes)) continue;
      ++measured;
      void* input = implementation.input ? implementation.input.get() : sharedInput.get();
      void* output = options.inPlace ? input : implementation.output ? implementation.output.get() : sharedOutput.get();
      const Call call = [&](CUstream_st* stream) { implementation.run(input, output, count, stream); };

      std::size_t wrong = 0;
      if (options.check) {
        backend.fill(output, 0x5a, bytes);
        backend.upload(input, inputBytes.data(), bytes);
        group.barrier();
        backend.runOnce(call);
        implementation.check();
        std::vector<std::byte> result(bytes);
        backend.download(result.data(), output, bytes);
        const auto wrongs = group.gather(
            countWrong(result, options.type, options.op, seed, group.size(), count, implementation.roundsEachAddition));
        wrong = std::accumulate(wrongs.begin(), wrongs.end(), std::size_t{0});
      } else {
        backend.upload(input, inputBytes.data(), bytes);
      }
      const auto times = group.gather(backend.time(call, options.timing, [&] { group.barrier(); }));
      implementation.check();
      totalWrong += wrong;
      if (recording && implementation.canRecord) {
        recording->add(call);
        implementation.check();
      }
      if (report) {
        const std::string name = implementation.name.empty()
                                     ? collectives.selectedAlgorithm(count, options.type, options.op)
                                     : implementation.name;
        report->add({name, bytes, count, *std::max_element(times.begin(), times.end()), wrong, options.check});
      }
    }
  }
  group.barrier();  // no rank frees memory that a peer may still use
  if (measured == 0) {
    throw Error("none of these algorithms takes messages of these sizes, this type and operator",
                ErrorCode::InvalidUsage);
  }
  if (recording) recording->write(*bootstrap, report.get());
  if (report) report->printVerdict(totalWrong);
  return totalWrong;
}

}  // namespace mscclpp::perf
