// Stands in for gpu_place.cu where there is no CUDA.
#include "mscclpp/host/error.hpp"
#include "place.hpp"

namespace mscclpp::bench {

std::unique_ptr<Place> gpuPlace(int) {
  throw Error("this build has no CUDA", ErrorCode::InvalidUsage);
}

int gpuCount() {
  return 0;
}

}  // namespace mscclpp::bench
