// Stands in for host/cuda/ in a build without the CUDA toolkit: every use of a GPU is a clear error.
#include "gpu_backend.hpp"
#include "gpu_rdma.hpp"
#include "mscclpp/host/error.hpp"
#include "multicast_group.hpp"

namespace mscclpp::detail {

namespace {

[[noreturn]] void noCuda() {
  throw Error(
      "this build of mscclpp has no CUDA: build it with -Dcuda=enabled to use GPUs, or use CPU ranks "
      "(HostBuffer and Transport::SharedMemory)",
      ErrorCode::InvalidUsage);
}

}  // namespace

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
void zeroGpuMemory(void*, std::size_t) {
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
void serveGpu(int) {
  noCuda();
}
std::string gpuPciAddress(int) {
  noCuda();
}
std::unique_ptr<StagedCopies> makeStagedCopies(int) {
  noCuda();
}
SharedPiece shareGpuMemory(void*, std::size_t, OfferTable&) {
  noCuda();
}
MappedPiece mapGpuMemory(const MemoryHandle&, std::size_t, Deadline) {
  noCuda();
}
std::shared_ptr<const void> adoptGpuMemory(void*, std::size_t) {
  noCuda();
}
std::string gpuBusId(int) {
  noCuda();
}
std::optional<DmaBuf> exportDmaBuf(void*, std::size_t) {
  noCuda();
}
std::unique_ptr<GpuWordWriter> makeGpuWordWriter(int) {
  noCuda();
}
std::unique_ptr<MulticastGroup> makeGpuMulticastGroup() {
  noCuda();
}
std::string whyNoMulticast(int) {
  noCuda();
}
std::shared_ptr<ConnectionBase> connectCudaIpc(std::shared_ptr<Context>, const Endpoint&, const Endpoint&) {
  noCuda();
}

}  // namespace mscclpp::detail
