// 11: an all-reduce with a source functor that is known at run time only, as text. The program needs no nvcc: it is
// compiled by a C++ compiler, and NVRTC compiles the kernel where the program runs.
#pragma once

#include <string>

#include "mscclpp/collective/all_reduce.hpp"
#include "mscclpp/jit/collective.hpp"

namespace example {

using namespace mscclpp;

/// The all-reduce, for the host: the type of the kernel's arguments.
using Collective = AllReduce<float, Sum, AllReduceConfig{.protocol = Protocol::LL16, .pattern = Pattern::TwoShot}>;

/// What the host knows of the functor: its layout.
struct Activation {
  ArraySource<float> input;
  float slope;
};

/// The leaky ReLU of the input, computed when the all-reduce reads an element. `expression` could come from a user: it
/// is a function of x and slope.
inline jit::KernelRequest request(const std::string& expression, const std::string& architecture = "") {
  return {
      .text = R"(
#include <mscclpp/collective/all_reduce.hpp>

struct Activation {
  mscclpp::ArraySource<float> input;
  float slope;

  MSCCLPP_DEVICE mscclpp::Pack<float> operator()(std::size_t first, int valid) const {
    auto pack = input(first, valid);
    for (int i = 0; i < valid; ++i) {
      const float x = pack[i];
      pack[i] = )" +
              expression + R"(;
    }
    return pack;
  }
};
)",
      .collective = "AllReduce<float, Sum, AllReduceConfig{.protocol = Protocol::LL16, .pattern = Pattern::TwoShot}>",
      .source = "Activation",
      .sink = "ArraySink<float>",
      .name = "activation.cu",
      .architecture = architecture};
}

inline const std::string leakyRelu = "x > 0 ? x : slope * x";

}  // namespace example
