// The main function of programs that measure several GPUs, one process per GPU.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>

#include "backend.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/launch/process_group.hpp"

namespace mscclpp::perf {

/// Parses the command line, then calls run(options, group) in a process for each of `options.ranks` GPUs, 0: all.
/// parse(argc, argv, options) returns the exit code if the program ends there. Returns the exit code: 77 (skipped) with
/// fewer than two GPUs, unless one rank is asked for, 1 after an error, which is printed with the name of the program.
template <class Options, class Parse, class Run>
int mainOnGpus(const char* name, int argc, char** argv, const Parse& parse, const Run& run) {
  constexpr int exitSkipped = 77;
  try {
    Options options;
    if (const auto exitCode = parse(argc, argv, options)) return *exitCode;
    std::string reason;
    const int gpus = gpuCount(reason);
    if (gpus < (options.ranks == 1 ? 1 : 2)) {
      fmt::print(stderr, "{}: needs at least two GPUs, found {}{}\n", name, gpus, reason.empty() ? "" : ": " + reason);
      return exitSkipped;
    }
    if (options.ranks > gpus) {
      throw Error(fmt::format("{} ranks need one GPU each, but only {} are available", options.ranks, gpus),
                  ErrorCode::InvalidUsage);
    }
    return runRanks(options.ranks > 0 ? options.ranks : gpus, {argv, argv + argc},
                    [&](ProcessGroup& group) { run(options, group); });
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 1;
  }
}

}  // namespace mscclpp::perf
