// The command line of the port channel benchmark.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "channel_kernel.hpp"

namespace mscclpp::bench {

/// What is measured: half a round trip of a ping-pong, a stream of puts, or the host calls.
enum class Measurement { PingPong, Stream, Breakdown };

struct Options {
  std::string device = "auto";
  bool oneGpu = false;
  std::vector<Measurement> measurements{Measurement::PingPong, Measurement::Stream, Measurement::Breakdown};
  std::vector<std::uint64_t> sizes{8, 1024, 1 << 16, 1 << 20, 1 << 24, 1 << 27};
  std::vector<Operation> operations{Operation::PutWithSignal};
  std::vector<ReleaseScope> releaseScopes{ReleaseScope::System};
  std::vector<int> wide{0};
  int messages = 0;
  int repeats = 5;
  int streams = 1;
  std::uint64_t bytesPerStream = 8 << 20;
  int fifoSize = 512;
  int popsPerTailUpdate = 16;
  int sleepAfter = -1;
  bool numaLocal = false;
  bool inlineValues = true;
  bool json = false;
};

std::string nameOf(Measurement measure);
std::string nameOf(Operation operation);
std::string nameOf(ReleaseScope releaseScope);

/// Returns the exit code if the program ends here.
std::optional<int> parse(int argc, char** argv, Options& options);

}  // namespace mscclpp::bench
