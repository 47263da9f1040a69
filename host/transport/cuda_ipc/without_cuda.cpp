// Replaces the rest of this folder in a build without the CUDA toolkit.
#include "host/cuda/no_cuda.hpp"
#include "host/transport/cuda_ipc/cuda_ipc.hpp"
#include "host/transport/unavailable_transport.hpp"

namespace mscclpp::detail {

std::unique_ptr<TransportBackend> makeCudaIpcTransport(ExportTable&) {
  return std::make_unique<UnavailableTransport>(Transport::CudaIpc, cudaIpcProperties, noCudaText);
}

}  // namespace mscclpp::detail
