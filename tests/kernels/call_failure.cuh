// Calls on a GPU that are made until one fails, and what its error must be.
#pragma once

#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <thread>

#include "gpu_rank.cuh"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/cuda/gpu.hpp"

namespace mscclpp::test {

struct Failure {
  ErrorCode code;
  std::string text;
  double seconds;  ///< from the failing call to its error
};

/// Makes calls, several at a time, until one fails. check: of their object, after the stream was synchronised.
inline Failure callUntilFailure(cudaStream_t stream, const std::function<void()>& enqueue,
                                const std::function<void()>& check) {
  while (true) {
    const auto start = std::chrono::steady_clock::now();
    try {
      for (int call = 0; call < 10; ++call) enqueue();
      MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
      check();
    } catch (const Error& error) {
      // The kernels must end too.
      MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
      return {error.getErrorCode(), error.what(), secondsSince(start)};
    }
  }
}

inline void checkFailure(const Failure& failure, ErrorCode code, const std::string& part) {
  CHECK(failure.code == code);
  CHECK_MESSAGE(failure.text.find(part) != std::string::npos, failure.text);
  CHECK(failure.seconds < 5);
}

/// Kills this process in a second.
inline void killSoon() {
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    std::raise(SIGKILL);
  }).detach();
}

}  // namespace mscclpp::test
