// Stands in for host/cuda/ in a build without the CUDA toolkit: every use of a GPU is a clear error.
#include "gpu_backend.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp::detail {

namespace {

[[noreturn]] void noCuda() {
  throw Error(
      "this build of mscclpp has no CUDA: build it with -Dcuda=enabled to use GPUs, or use CPU ranks "
      "(HostBuffer and Transport::SharedMemory)",
      ErrorCode::InvalidUsage);
}

}  // namespace

int currentGpu() {
  noCuda();
}
void checkGpu(int) {
  noCuda();
}
std::shared_ptr<void> allocateGpuMemory(int, std::size_t) {
  noCuda();
}
void zeroGpuMemory(void*, std::size_t) {
  noCuda();
}
std::shared_ptr<void> allocateGpuVisibleHostMemory(std::size_t) {
  noCuda();
}
SharedPiece shareGpuMemory(void*, std::size_t, OfferTable&) {
  noCuda();
}
MappedPiece mapGpuMemory(const MemoryHandle&, std::size_t) {
  noCuda();
}
std::shared_ptr<const void> adoptGpuMemory(void*, std::size_t) {
  noCuda();
}
std::shared_ptr<ConnectionBase> connectCudaIpc(std::shared_ptr<Context>, const Endpoint&, const Endpoint&) {
  noCuda();
}

}  // namespace mscclpp::detail
