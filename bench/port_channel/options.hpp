// The command line of the port channel benchmark.
#pragma once

#include <string>
#include <vector>

#include "work.hpp"

namespace mscclpp::bench {

/// What is measured: one way of a ping-pong, a stream of puts, or the host's parts of the way.
enum class Measure { PingPong, Stream, Parts };

struct Options {
  std::string device = "auto";
  bool oneGpu = false;
  std::vector<Measure> measures{Measure::PingPong, Measure::Stream, Measure::Parts};
  std::vector<std::uint64_t> sizes{8, 1024, 1 << 16, 1 << 20, 1 << 24, 1 << 27};
  std::vector<Form> forms{Form::PutWithSignal};
  std::vector<Publish> publishes{Publish::System};
  std::vector<int> wide{0};
  int messages = 0;
  int repeats = 5;
  int streams = 1;
  std::uint64_t bytesPerStream = 8 << 20;
  int fifoSize = 512;
  int popsPerReport = 16;
  int sleepAfter = -1;
  bool near = false;
  bool values = true;
  bool json = false;
};

std::string nameOf(Measure measure);
std::string nameOf(Form form);
std::string nameOf(Publish publish);

/// False: the program is to end with `code`.
bool parse(int argc, char** argv, Options& options, int& code);

}  // namespace mscclpp::bench
