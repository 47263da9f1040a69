// Stands in for gpu_place.cpp in a build without CUDA.
#include "mscclpp/host/error.hpp"
#include "place.hpp"

namespace mscclpp::perf {

int gpuCount(std::string& why) {
  why = "this build has no CUDA";
  return 0;
}

std::unique_ptr<Place> gpuPlace(int) {
  throw Error("this build has no CUDA: configure it with -Dcuda=enabled", ErrorCode::InvalidUsage);
}

}  // namespace mscclpp::perf
