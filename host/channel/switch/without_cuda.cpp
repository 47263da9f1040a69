// Replaces gpu_multicast_group.cpp in a build without the CUDA toolkit.
#include "host/channel/switch/multicast_group.hpp"
#include "host/cuda/no_cuda.hpp"

namespace mscclpp::detail {

std::unique_ptr<MulticastGroup> makeGpuMulticastGroup() {
  noCuda();
}
std::string whyNoMulticast(int) {
  noCuda();
}

}  // namespace mscclpp::detail
