// Times pushes into the FIFO to a proxy: by one thread, by warps, by many blocks; on a GPU, or on CPU threads.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <vector>

#include "place.hpp"
#include "trigger_options.hpp"

namespace {

using namespace mscclpp;
using namespace mscclpp::bench;

const Names<Form> forms{{"thread", Form::Thread}, {"warp", Form::Warp}, {"every_thread", Form::EveryThread}};
const Names<int> syncs{{"no", 0}, {"each", 1}};

struct Options {
  std::string device = "auto";
  std::vector<Form> forms{Form::Thread, Form::Warp};
  std::vector<Publish> publishes{Publish::Nothing, Publish::Device, Publish::System};
  std::vector<int> wide{0};
  std::vector<int> sync{0};
  std::vector<int> blocks{1};
  std::vector<int> threads{32};
  std::vector<int> fifos{1};
  std::vector<int> sizes{512};
  std::vector<int> popsPerReport{1};
  std::vector<int> dirtyWords{0};
  int pushes = 10000;
  int repeats = 7;
  bool json = false;
};

std::vector<Case> casesOf(const Options& options) {
  std::vector<Case> cases;
  const auto forEach = [](const auto& values, const auto& body) {
    for (const auto value : values) body(value);
  };
  forEach(options.wide, [&](int wide) {
    forEach(options.forms, [&](Form form) {
      forEach(options.publishes, [&](Publish publish) {
        forEach(options.sync, [&](int sync) {
          forEach(options.blocks, [&](int blocks) {
            forEach(options.threads, [&](int threads) {
              forEach(options.fifos, [&](int fifos) {
                forEach(options.sizes, [&](int size) {
                  forEach(options.popsPerReport, [&](int pops) {
                    forEach(options.dirtyWords, [&](int dirty) {
                      cases.push_back({form, publish, wide != 0, sync != 0, blocks, threads, fifos, size, pops, dirty,
                                       options.pushes});
                    });
                  });
                });
              });
            });
          });
        });
      });
    });
  });
  return cases;
}

bool parse(int argc, char** argv, Options& options, int& code) {
  CLI::App app{"Times pushes into the FIFO to a proxy. Lists give one line for each combination."};
  app.add_option("--device", options.device, "auto, gpu or cpu")->check(CLI::IsMember({"auto", "gpu", "cpu"}));
  addNamed(app, "--form", options.forms, forms,
           "who pushes in a block: thread, warp (all lanes at once), every_thread");
  addTriggerOptions(app, "push", options.publishes, options.wide);
  addNamed(app, "--sync", options.sync, syncs, "wait until a trigger is popped: no, each");
  app.add_option("--blocks", options.blocks, "blocks of the launch")->delimiter(',')->check(CLI::Range(1, 4096));
  app.add_option("--threads", options.threads, "threads a block, whole warps")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  app.add_option("--fifos", options.fifos, "FIFOs of the proxy, dealt out to the blocks")
      ->delimiter(',')
      ->check(CLI::Range(1, maxFifos));
  app.add_option("--fifo-size", options.sizes, "slots of a FIFO, a power of two")->delimiter(',');
  app.add_option("--pops-per-report", options.popsPerReport, "pops between two that tell the device")->delimiter(',');
  app.add_option("--dirty", options.dirtyWords, "words that each thread writes before each push")
      ->delimiter(',')
      ->check(CLI::Range(0, 1024));
  app.add_option("--pushes", options.pushes, "pushes of each pusher")->check(CLI::Range(1, 100'000'000));
  app.add_option("--repeats", options.repeats, "runs of a line, of which the median counts")
      ->check(CLI::Range(1, 1000));
  app.add_flag("--json", options.json, "a line of JSON for each case instead of the table");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    code = app.exit(error);
    return false;
  }
  return true;
}

Result medianOf(std::vector<Result> results) {
  const auto middle = results.begin() + static_cast<std::ptrdiff_t>(results.size() / 2);
  std::nth_element(results.begin(), middle, results.end(),
                   [](const Result& a, const Result& b) { return a.nanosecondsPerPush < b.nanosecondsPerPush; });
  return *middle;
}

void report(const Options& options, const Case& each, const Result& result) {
  const auto form = nameIn(forms, each.form);
  const auto publish = nameIn(publishes, each.publish);
  const auto layout = nameIn(layouts, each.wide ? 1 : 0);
  if (options.json) {
    const nlohmann::ordered_json line{{"bench", "fifo"},
                                      {"form", form},
                                      {"publish", publish},
                                      {"trigger", layout},
                                      {"sync", each.sync},
                                      {"blocks", each.blocks},
                                      {"threads", each.threads},
                                      {"fifos", each.fifos},
                                      {"fifoSize", each.fifoSize},
                                      {"popsPerReport", each.popsPerReport},
                                      {"dirtyWords", each.dirtyWords},
                                      {"pushes", each.pushes},
                                      {"nsPerPush", result.nanosecondsPerPush},
                                      {"millionTriggersPerSecond", result.triggersPerMicrosecond}};
    fmt::print("{}\n", line.dump());
  } else {
    fmt::print("{:>12} {:>8} {:>8} {:>5} {:>7} {:>8} {:>6} {:>6} {:>5} {:>6} {:>12.1f} {:>14.3f}\n", form, publish,
               layout, each.sync ? "each" : "no", each.blocks, each.threads, each.fifos, each.fifoSize,
               each.popsPerReport, each.dirtyWords, result.nanosecondsPerPush, result.triggersPerMicrosecond);
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Options options;
    int code = 0;
    if (!parse(argc, argv, options, code)) return code;
    const std::string gpu = options.device == "cpu" ? "" : gpuName();
    if (gpu.empty() && options.device == "gpu") {
      fmt::print(stderr, "fifo: there is no GPU\n");
      return 1;
    }
    if (!options.json) {
      fmt::print("# pushes into the FIFO on {}; {} a pusher, median of {}\n", gpu.empty() ? "CPU threads" : gpu,
                 options.pushes, options.repeats);
      fmt::print("# {:>10} {:>8} {:>8} {:>5} {:>7} {:>8} {:>6} {:>6} {:>5} {:>6} {:>12} {:>14}\n", "form", "publish",
                 "trigger", "sync", "blocks", "threads", "fifos", "slots", "pops", "dirty", "ns a push",
                 "M triggers/s");
    }
    for (const Case& each : casesOf(options)) {
      std::vector<Result> results;
      for (int repeat = 0; repeat < options.repeats; ++repeat) {
        results.push_back(gpu.empty() ? runOnCpu(each) : runOnGpu(each));
      }
      report(options, each, medianOf(std::move(results)));
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "fifo: {}\n", error.what());
    return 1;
  }
}
