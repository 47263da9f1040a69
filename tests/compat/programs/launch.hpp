// Starts the programs of this folder: a process for each rank, as by a job launcher, with its rank, the number of ranks
// and a port.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/host/ranks.hpp"

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#endif

namespace launch {

inline constexpr int skipped = 77;

/// Runs body(rank, ranks, address) in `ranks` processes. Returns the exit status for main.
inline int runRanks(int count, const std::function<void(int, int, const std::string&)>& body) {
  const std::string address = "lo:127.0.0.1:" + std::to_string(mscclpp::test::freePort());
  std::vector<mscclpp::test::ChildProcess> children;
  for (int rank = 0; rank < count; ++rank) children.emplace_back([&, rank] { body(rank, count, address); });
  int status = 0;
  for (int rank = 0; rank < count; ++rank) {
    const std::string outcome = children[static_cast<std::size_t>(rank)].wait();
    if (outcome.empty()) continue;
    std::fprintf(stderr, "rank %d: %s\n", rank, outcome.c_str());
    status = 1;
  }
  if (status == 0) std::printf("%d ranks: correct\n", count);
  return status;
}

#if defined(__CUDACC__)

/// Calls body with the number of GPUs. With fewer than `minGpus` skips, or fails if MSCCLPP_REQUIRE_GPU=1. Returns the
/// exit status for main.
inline int onGpus(int minGpus, const std::function<int(int)>& body) {
  // A process that has called CUDA cannot fork ranks that use CUDA, so a child process counts the GPUs.
  int ends[2];
  if (::pipe(ends) != 0) return 1;
  int gpus = -1;
  const pid_t counter = ::fork();
  if (counter == 0) {
    const cudaError_t error = cudaGetDeviceCount(&gpus);
    const bool none = error == cudaErrorNoDevice ||
                      (error == cudaErrorInsufficientDriver && !std::filesystem::exists("/dev/nvidiactl"));
    if (none) gpus = 0;
    if (error != cudaSuccess && !none) gpus = -1;
    ::_exit(::write(ends[1], &gpus, sizeof(gpus)) == sizeof(gpus) ? 0 : 1);
  }
  ::close(ends[1]);
  if (::read(ends[0], &gpus, sizeof(gpus)) != sizeof(gpus)) gpus = -1;
  ::close(ends[0]);
  ::waitpid(counter, nullptr, 0);
  if (gpus < 0) {
    std::fprintf(stderr, "cannot count GPUs\n");
    return 1;
  }
  if (gpus < minGpus) {
    const char* required = std::getenv("MSCCLPP_REQUIRE_GPU");
    std::fprintf(stderr, "needs %d GPUs, found %d\n", minGpus, gpus);
    return required != nullptr && std::strcmp(required, "1") == 0 ? 1 : skipped;
  }
  return body(gpus);
}

/// Runs body in ranks with one GPU each, made current: at most `maxGpus`.
inline int ranksOnGpus(int minGpus, int maxGpus, const std::function<void(int, int, const std::string&)>& body) {
  return onGpus(minGpus, [&](int gpus) {
    return runRanks(gpus < maxGpus ? gpus : maxGpus, [&](int rank, int count, const std::string& address) {
      if (cudaSetDevice(rank) != cudaSuccess) throw std::runtime_error("cudaSetDevice");
      body(rank, count, address);
    });
  });
}

#endif

/// Fails the rank.
inline void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

}  // namespace launch
