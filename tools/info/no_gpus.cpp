// Replaces gpus.cpp in a build without CUDA.
#include "report.hpp"

namespace mscclpp::info {

Json queryGpus() {
  return {{"cuda",
           {{"built", false},
            {"driver", nullptr},
            {"runtime", nullptr},
            {"nvml", nullptr},
            {"error", "this build has no CUDA: build with -Dcuda=enabled"}}},
          {"gpus", Json::array()},
          {"pairs", Json::array()}};
}

}  // namespace mscclpp::info
