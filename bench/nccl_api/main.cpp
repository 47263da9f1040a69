// Times what NCCL's C API costs a program: an eager call, a group of them, the creation of a communicator, a split; of
// any library that exports it, one process for each rank. The first line is this library called directly, without it.
// mscclpp-perf --nccl-library times the collectives themselves.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api.hpp"
#include "bench/json_line.hpp"
#include "device.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/launch/process_group.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "tools/command_line/command_line.hpp"

using namespace mscclpp;
using namespace mscclpp::bench;

namespace {

struct Options {
  std::vector<std::string> libraries;
  std::string device = "auto";
  int ranks = 2;
  int repeats = 20;
  int calls = 100;
  bool json = false;
};

using Clock = std::chrono::steady_clock;

double microsecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Runs the measurements of one implementation; on rank 0 prints the largest medians of all ranks.
class Measurement {
 public:
  Measurement(const Options& options, Bootstrap& bootstrap, RankDevice& device, std::string implementation)
      : options_(options), bootstrap_(bootstrap), device_(device), implementation_(std::move(implementation)) {}

  /// Time that a call takes from its thread, the stream not being full. count: elements of an all-reduce of float.
  void timeEagerCall(std::size_t count, const std::function<void(const void*, void*, std::size_t)>& allReduce) {
    const auto input = device_.allocate(count * sizeof(float));
    const auto output = device_.allocate(count * sizeof(float));
    timeCalls(
        "eager call", count * sizeof(float), [&] { allReduce(input.get(), output.get(), count); }, false);
  }

  /// Time that `call`, with messages of `bytes` bytes, takes from its thread or, if isCompleted, until it is complete
  /// when many of them are made one after another.
  void timeCalls(const char* what, std::size_t bytes, const std::function<void()>& call, bool isCompleted) {
    std::vector<double> times;
    for (int repeat = 0; repeat <= options_.repeats; ++repeat) {
      bootstrap_.barrier();
      const auto start = Clock::now();
      for (int i = 0; i < options_.calls; ++i) call();
      if (isCompleted) device_.synchronize();
      const double time = microsecondsSince(start) / options_.calls;
      device_.synchronize();
      if (repeat > 0) times.push_back(time);  // the first one warms up
    }
    print(what, bytes, median(times));
  }

  /// `make` is collective and returns what is then destroyed, outside the time.
  void timeCreation(const char* what, const std::function<std::shared_ptr<void>()>& make) {
    std::vector<double> times;
    std::size_t bytes = 0;
    for (int repeat = 0; repeat <= options_.repeats; ++repeat) {
      bootstrap_.barrier();
      const std::size_t before = device_.usedBytes();
      bootstrap_.barrier();
      const auto start = Clock::now();
      const auto made = make();
      const double time = microsecondsSince(start);
      bootstrap_.barrier();
      const std::size_t after = device_.usedBytes();
      bootstrap_.barrier();
      if (repeat > 0) times.push_back(time);
      bytes = after > before ? after - before : 0;
    }
    print(what, bytes, median(times));
  }

 private:
  void print(const char* what, std::size_t bytes, double microseconds) {
    std::vector<double> all(static_cast<std::size_t>(bootstrap_.getNranks()));
    all[static_cast<std::size_t>(bootstrap_.getRank())] = microseconds;
    bootstrap_.allGather(all.data(), sizeof(double));
    if (bootstrap_.getRank() != 0) return;
    const double slowest = *std::max_element(all.begin(), all.end());
    if (options_.json) {
      JsonLine line;
      line.add("implementation", implementation_).add("measurement", what);
      line.add("ranks", bootstrap_.getNranks()).add("bytes", static_cast<std::uint64_t>(bytes)).add("us", slowest);
      fmt::print("{}\n", line.text());
    } else {
      fmt::print("{:<40} {:<17} {:>10} B {:>12.2f} us\n", implementation_, what, bytes, slowest);
    }
    std::fflush(stdout);
  }

  const Options& options_;
  Bootstrap& bootstrap_;
  RankDevice& device_;
  const std::string implementation_;
};

constexpr std::size_t counts[] = {2, 2048, 262144};

void measureDirectly(const Options& options, const std::shared_ptr<Bootstrap>& bootstrap, RankDevice& device) {
  Measurement measurement(options, *bootstrap, device, "mscclpp, called directly");
  const auto make = [&] {
    return std::make_shared<Collectives>(std::make_shared<Communicator>(bootstrap), device.type());
  };
  const auto collectives = make();
  for (const std::size_t count : counts) {
    measurement.timeEagerCall(count, [&](const void* input, void* output, std::size_t elements) {
      collectives->allReduce(input, output, elements, DataType::FLOAT32, ReduceOp::SUM, device.stream());
    });
  }
  measurement.timeCreation("creation", make);
}

/// Some collectives one after another, and as a group. make(input, output, count): one of them, of floats.
template <class Make>
void timeGroups(const NcclApi& api, Measurement& measurement, RankDevice& device, const std::string& name, int ranks,
                const Make& make) {
  constexpr int collectives = 4;
  for (const std::size_t count : {256, 4096, 16384, 65536}) {
    std::vector<std::shared_ptr<void>> inputs, outputs;
    for (int i = 0; i < collectives; ++i) {
      inputs.push_back(device.allocate(count * sizeof(float) * static_cast<std::size_t>(ranks)));
      outputs.push_back(device.allocate(count * sizeof(float) * static_cast<std::size_t>(ranks)));
    }
    const auto makeAll = [&] {
      for (std::size_t i = 0; i < inputs.size(); ++i) make(inputs[i].get(), outputs[i].get(), count);
    };
    measurement.timeCalls(("4 " + name).c_str(), count * sizeof(float), makeAll, true);
    measurement.timeCalls(
        "a group of 4", count * sizeof(float),
        [&] {
          api.check(api.groupStart(), "ncclGroupStart");
          makeAll();
          api.check(api.groupEnd(), "ncclGroupEnd");
        },
        true);
  }
}

/// As frameworks make for the parameters, or gradients, of a layer.
void timeGroups(const NcclApi& api, Measurement& measurement, RankDevice& device, ncclComm_t comm, int ranks) {
  timeGroups(api, measurement, device, "all-gathers", ranks, [&](const void* input, void* output, std::size_t count) {
    api.check(api.allGather(input, output, count, ncclFloat32, comm, device.stream()), "ncclAllGather");
  });
  timeGroups(api, measurement, device, "all-reduces", ranks, [&](const void* input, void* output, std::size_t count) {
    api.check(api.allReduce(input, output, count, ncclFloat32, ncclSum, comm, device.stream()), "ncclAllReduce");
  });
  timeGroups(api, measurement, device, "reduce-scatters", ranks,
             [&](const void* input, void* output, std::size_t count) {
               api.check(api.reduceScatter(input, output, count, ncclFloat32, ncclSum, comm, device.stream()),
                         "ncclReduceScatter");
             });
}

void measure(const std::string& path, const Options& options, Bootstrap& bootstrap, RankDevice& device) {
  const NcclApi api(path);
  Measurement measurement(options, bootstrap, device, path.size() > 40 ? "..." + path.substr(path.size() - 37) : path);
  const int rank = bootstrap.getRank();
  const auto owned = [&](ncclComm_t comm) {
    return std::shared_ptr<ncclComm>(comm, [&api](ncclComm_t c) { static_cast<void>(api.commDestroy(c)); });
  };
  const auto create = [&] {
    std::vector<ncclUniqueId> ids(static_cast<std::size_t>(bootstrap.getNranks()));
    if (rank == 0) api.check(api.getUniqueId(&ids[0]), "ncclGetUniqueId");
    bootstrap.allGather(ids.data(), sizeof(ncclUniqueId));
    ncclComm_t comm = nullptr;
    api.check(api.commInitRank(&comm, bootstrap.getNranks(), ids[0], rank), "ncclCommInitRank");
    return owned(comm);
  };
  {
    const auto comm = create();
    for (const std::size_t count : counts) {
      measurement.timeEagerCall(count, [&](const void* input, void* output, std::size_t elements) {
        api.check(api.allReduce(input, output, elements, ncclFloat32, ncclSum, comm.get(), device.stream()),
                  "ncclAllReduce");
      });
    }
    timeGroups(api, measurement, device, comm.get(), bootstrap.getNranks());
    measurement.timeCreation("split", [&] {
      ncclComm_t part = nullptr;
      api.check(api.commSplit(comm.get(), 0, rank, &part, nullptr), "ncclCommSplit");
      return owned(part);
    });
  }
  measurement.timeCreation("creation", create);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Options options;
    cli::CommandLine commandLine(
        "Times NCCL's C API on the host. Bytes are those of a message, or of GPU memory that a communicator takes.");
    commandLine.add("-l,--library", options.libraries, "paths of libraries that export the API, with ','");
    commandLine.add("-n,--ranks", options.ranks, "one process each").range(1, 8);
    commandLine.add("--device", options.device, "auto, gpu or cpu").oneOf({"auto", "gpu", "cpu"});
    commandLine.add("--repeats", options.repeats, "of which the median is reported").range(1, 10000);
    commandLine.add("--calls", options.calls, "eager calls in a row").range(1, 1000);
    commandLine.addFlag("--json", options.json, "a line of JSON for each measurement");
    if (const auto exitCode = commandLine.parse(argc, argv)) return *exitCode;
    const bool onGpu = options.device == "gpu" || (options.device == "auto" && gpuCount() >= options.ranks);
    // Before this library or those that are loaded read it.
    if (!onGpu) ::setenv("MSCCLPP_NCCL_DEVICE", "cpu", 1);
    return runRanks(options.ranks, {argv, argv + argc}, [&](ProcessGroup& group) {
      const auto bootstrap = group.connect();
      const auto device = onGpu ? makeGpu(group.localRank()) : makeCpu();
      measureDirectly(options, bootstrap, *device);
      for (const std::string& library : options.libraries) measure(library, options, *bootstrap, *device);
    });
  } catch (const std::exception& error) {
    fmt::print(stderr, "nccl_api: {}\n", error.what());
    return 1;
  }
}
