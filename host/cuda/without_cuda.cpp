// Replaces the rest of this folder in a build without the CUDA toolkit: every use of a GPU throws an error.
#include "host/cuda/gpu_backend.hpp"
#include "host/cuda/gpu_rdma.hpp"
#include "host/cuda/no_cuda.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

void noCuda() {
  throw Error(noCudaText, ErrorCode::InvalidUsage);
}

std::string cudaErrorText(int) {
  return {};
}
std::string cuErrorText(int) {
  return {};
}
int currentGpu() {
  noCuda();
}
void checkGpu(int) {
  noCuda();
}
int gpuOf(const void*) {
  return -1;
}
std::shared_ptr<void> allocateGpuMemory(int, std::size_t) {
  noCuda();
}
void fillGpuMemory(void*, int, std::size_t) {
  noCuda();
}
void writeGpuMemory(void*, const void*, std::size_t) {
  noCuda();
}
void readGpuMemory(void*, const void*, std::size_t) {
  noCuda();
}
std::shared_ptr<void> allocatePrivateGpuMemory(int, std::size_t) {
  noCuda();
}
std::shared_ptr<void> allocateGpuVisibleHostMemory(std::size_t) {
  noCuda();
}
void initGpuThread(int) {
  noCuda();
}
std::string gpuPciBusId(int) {
  noCuda();
}
std::unique_ptr<StagingCopier> makeStagingCopier(int) {
  noCuda();
}
std::optional<DmaBuf> exportDmaBuf(void*, std::size_t) {
  noCuda();
}
std::unique_ptr<GpuWordWriter> makeGpuWordWriter(int) {
  noCuda();
}

}  // namespace mscclpp::detail
