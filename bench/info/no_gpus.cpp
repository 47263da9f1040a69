// Stands in for gpus.cpp in a build without CUDA.
#include "facts.hpp"

namespace mscclpp::info {

Json gatherGpus() {
  return {{"cuda",
           {{"built", false},
            {"driver", nullptr},
            {"runtime", nullptr},
            {"nvml", nullptr},
            {"problem", "this build has no CUDA: build with -Dcuda=enabled"}}},
          {"gpus", Json::array()},
          {"pairs", Json::array()}};
}

}  // namespace mscclpp::info
