// What one rank does: every size with every algorithm and peer, timed and checked.
#include "measure.hpp"

#include <algorithm>
#include <numeric>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "nccl.hpp"
#include "reference.hpp"
#include "report.hpp"

namespace mscclpp::perf {

namespace {

/// Something that can be timed at a size.
struct Contestant {
  std::string name;
  std::function<void(const void* input, void* output, std::size_t count, CUstream_st* stream)> run;
  std::function<bool(std::size_t bytes)> serves;
  bool roundsEachStep;
  std::function<void()> check;
  bool canRecord;
  std::shared_ptr<void> input;  ///< null: the common buffers
  std::shared_ptr<void> output;
};

class Team {
 public:
  explicit Team(Bootstrap& bootstrap) : bootstrap_(bootstrap) {}
  int rank() const { return bootstrap_.getRank(); }
  int size() const { return bootstrap_.getNranks(); }
  void together() const { bootstrap_.barrier(); }
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

std::vector<Contestant> contestants(const Options& options, Collectives& collectives, Nccl* nccl,
                                    std::size_t maxBytes) {
  std::vector<Contestant> all;
  std::vector<std::string> names = options.algorithms;
  if (names.empty()) names.emplace_back();
  if (names == std::vector<std::string>{"all"}) names = collectives.algorithms();
  for (const std::string& name : names) {
    all.push_back({name,
                   [&collectives, &options, name](const void* in, void* out, std::size_t count, CUstream_st* stream) {
                     collectives.allReduce(in, out, count, options.type, options.op, stream, name);
                   },
                   [&collectives, &options, name](std::size_t bytes) {
                     return name.empty() ||
                            collectives.serves(name, bytes / sizeOf(options.type), options.type, options.op);
                   },
                   false, [&collectives] { collectives.check(); }, true, nullptr, nullptr});
  }
  if (nccl != nullptr) {
    const auto run = [nccl, &options](const void* in, void* out, std::size_t count, CUstream_st* stream) {
      nccl->allReduce(in, out, count, options.type, options.op, stream);
    };
    const auto always = [](std::size_t) { return true; };
    all.push_back({"NCCL", run, always, true, [] {}, false, nullptr, nullptr});
    auto input = nccl->allocateWindow(maxBytes);
    if (input != nullptr)
      all.push_back({"NCCL symmetric", run, always, true, [] {}, false, input, nccl->allocateWindow(maxBytes)});
  }
  return all;
}

void checkNames(const std::vector<std::string>& wanted, const std::vector<std::string>& offered) {
  for (const std::string& name : wanted) {
    if (name == "all" || std::find(offered.begin(), offered.end(), name) != offered.end()) continue;
    std::string known = "all";
    for (const std::string& each : offered) known += ", " + each;
    throw Error("there is no algorithm \"" + name + "\" here; there are: " + known, ErrorCode::InvalidUsage);
  }
}

/// The trace of a run: further calls, which nobody times.
class Recording {
 public:
  Recording(const Options& options, const Team& team, Collectives& collectives, Place& place)
      : options_(options),
        team_(team),
        collectives_(collectives),
        place_(place),
        trace_(collectives.makeTrace({.eventsPerRecorder = 1 << 14})),
        unseen_(collectives.makeTrace({.eventsPerRecorder = 2})) {
    if (!collectives.recordsStages(options.type, options.op)) {
      throw Error(
          std::string("--trace: the stages of an all-reduce are recorded for float32 and bfloat16 with operator "
                      "sum, not for ") +
              nameOf(options.type) + " with " + nameOf(options.op),
          ErrorCode::InvalidUsage);
    }
  }

  void add(const Call& call) {
    // The first call of a variant loads its kernel: nothing to look at.
    make(call, unseen_, 1);
    make(call, trace_, options_.tracedCalls);
    trace_->collect();
  }

  void write(Bootstrap& bootstrap, const Report* report) {
    writeTrace(options_.traceFile, *trace_, bootstrap);
    const auto lost = team_.gather(trace_->lost());
    if (report) report->traced(std::accumulate(lost.begin(), lost.end(), std::uint64_t{0}));
  }

 private:
  void make(const Call& call, const std::shared_ptr<Trace>& trace, int calls) {
    collectives_.record(trace);
    team_.together();
    place_.once([&](CUstream_st* stream) {
      for (int i = 0; i < calls; ++i) call(stream);
    });
    collectives_.record(nullptr);
  }

  const Options& options_;
  const Team& team_;
  Collectives& collectives_;
  Place& place_;
  std::shared_ptr<Trace> trace_;
  std::shared_ptr<Trace> unseen_;
};

}  // namespace

std::size_t measureAllReduce(const Options& options, std::shared_ptr<Bootstrap> bootstrap, Place& place, bool onGpu) {
  const Team team(*bootstrap);
  auto communicator = std::make_shared<Communicator>(bootstrap);
  Collectives collectives(communicator, onGpu ? DeviceType::GPU : DeviceType::CPU,
                          options.algorithms.empty() ? Collectives::Algorithms::Chosen : Collectives::Algorithms::All);
  checkNames(options.algorithms, collectives.algorithms());
  std::unique_ptr<Recording> recording;
  if (!options.traceFile.empty()) recording = std::make_unique<Recording>(options, team, collectives, place);
  std::unique_ptr<Nccl> nccl;
  if (options.nccl) nccl = std::make_unique<Nccl>(options.ncclLibrary, *bootstrap);

  const std::size_t elementBytes = sizeOf(options.type);
  const std::size_t maxBytes = *std::max_element(options.sizes.begin(), options.sizes.end());
  const auto commonInput = place.allocate(maxBytes);
  const auto commonOutput = place.allocate(maxBytes);
  std::unique_ptr<Report> report;
  if (team.rank() == 0) {
    report =
        std::make_unique<Report>(options, team.size(), place.description() + (nccl ? ", NCCL " + nccl->version() : ""));
  }

  std::size_t wrongInAll = 0;
  std::size_t measured = 0;
  const auto all = contestants(options, collectives, nccl.get(), maxBytes);
  for (std::size_t s = 0; s < options.sizes.size(); ++s) {
    const std::size_t count = options.sizes[s] / elementBytes;
    const std::size_t bytes = count * elementBytes;
    if (report) report->progress(s, options.sizes.size(), bytes);
    const std::uint64_t seed = 1000 + s;
    const auto inputBytes = makeInput(options.type, options.op, seed, team.rank(), count);
    for (const Contestant& contestant : all) {
      if (!contestant.serves(bytes)) continue;
      ++measured;
      void* input = contestant.input ? contestant.input.get() : commonInput.get();
      void* output = options.inPlace ? input : contestant.output ? contestant.output.get() : commonOutput.get();
      const Call call = [&](CUstream_st* stream) { contestant.run(input, output, count, stream); };

      std::size_t wrong = 0;
      if (options.check) {
        place.fill(output, 0x5a, bytes);
        place.upload(input, inputBytes.data(), bytes);
        team.together();
        place.once(call);
        contestant.check();
        std::vector<std::byte> result(bytes);
        place.download(result.data(), output, bytes);
        const auto wrongs = team.gather(
            countWrong(result, options.type, options.op, seed, team.size(), count, contestant.roundsEachStep));
        wrong = std::accumulate(wrongs.begin(), wrongs.end(), std::size_t{0});
      } else {
        place.upload(input, inputBytes.data(), bytes);
      }
      const auto times = team.gather(place.time(call, options.method, [&] { team.together(); }));
      contestant.check();
      wrongInAll += wrong;
      if (recording && contestant.canRecord) {
        recording->add(call);
        contestant.check();
      }
      if (report) {
        const std::string name =
            contestant.name.empty() ? collectives.chosen(count, options.type, options.op) : contestant.name;
        report->add({name, bytes, count, *std::max_element(times.begin(), times.end()), wrong, options.check});
      }
    }
  }
  team.together();  // nobody frees what a peer may still use
  if (measured == 0) {
    throw Error("none of these algorithms takes messages of these sizes, this type and operator",
                ErrorCode::InvalidUsage);
  }
  if (recording) recording->write(*bootstrap, report.get());
  if (report) report->close(wrongInAll);
  return wrongInAll;
}

}  // namespace mscclpp::perf
