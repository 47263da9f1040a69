// The snippets of MSCCL++'s README between two GPUs, word for word but for what they leave out ("..."), and but for the
// parentheses of `ProxyService proxyService();`, which would declare a function.
#include <mscclpp/core.hpp>
#include <mscclpp/gpu_utils.hpp>
#include <mscclpp/port_channel.hpp>
#include <mscclpp/proxy.hpp>
#include <stdexcept>

#include "launch.hpp"

#pragma nv_diag_suppress 1444  // the README uses the older names
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

// clang-format off

// `ProxyChannel` will be explained in the following section.
__device__ mscclpp::DeviceHandle<mscclpp::SimpleProxyChannel> channel;
__global__ void gpuKernel() {
// Only one thread is needed for this method.
channel.put(/*dstOffset=*/ 0, /*srcOffset=*/ 0, /*size=*/ 1024);
}

// Only one thread is needed for this function.
__device__ void barrier() {
// Inform the peer GPU that I have arrived at this point.
channel.signal();
// Flush the previous signal() call, which will wait for completion of signaling.
channel.flush();
// Wait for the peer GPU to call signal().
channel.wait();
// Now this thread is synchronized with the remote GPU's thread.
// Users may call a local synchronize functions (e.g., __syncthreads())
// to synchronize other local threads as well with the remote side.
}

// clang-format on

namespace {

__global__ void barrierKernel() {
  barrier();
}

void run(int rank, int world_size, const std::string& address) {
  // Bootstrap: initialize control-plane connections between all ranks
  auto bootstrap = std::make_shared<mscclpp::TcpBootstrap>(rank, world_size);
  bootstrap->initialize(address);
  // Create a communicator for connection setup
  mscclpp::Communicator comm(bootstrap);
  // Setup connections here using `comm`, in the README's time
  const int peer = 1 - rank;
  auto connection = comm.connectOnSetup(peer, 0, mscclpp::Transport::CudaIpc);
  mscclpp::GpuBuffer<char> source(2048), target(2048);
  auto local = comm.registerMemory(source.data(), source.bytes(), mscclpp::Transport::CudaIpc);
  comm.sendMemoryOnSetup(comm.registerMemory(target.data(), target.bytes(), mscclpp::Transport::CudaIpc), peer, 0);
  mscclpp::NonblockingFuture<mscclpp::RegisteredMemory> remote = comm.recvMemoryOnSetup(peer, 0);
  comm.setup();
  // Construct the default proxy
  mscclpp::ProxyService proxyService;
  const auto semaphoreId = proxyService.buildAndAddSemaphore(comm, connection.get());
  mscclpp::SimpleProxyChannel simple =
      proxyService.portChannel(semaphoreId, proxyService.addMemory(remote.get()), proxyService.addMemory(local));
  const auto handle = mscclpp::deviceHandle(simple);
  MSCCLPP_CUDATHROW(cudaMemcpyToSymbol(channel, &handle, sizeof(handle)));
  // Start the proxy
  proxyService.startProxy();
  // Run the user application, i.e., launch GPU kernels here
  std::vector<char> bytes(2048, static_cast<char>(1 + rank));
  mscclpp::gpuMemcpy(source.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
  gpuKernel<<<1, 1>>>();
  barrierKernel<<<1, 1>>>();
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  mscclpp::gpuMemcpy(bytes.data(), target.data(), bytes.size(), cudaMemcpyDeviceToHost);
  for (int i = 0; i < 2048; ++i) launch::require(bytes[i] == (i < 1024 ? 1 + peer : 0), "put of 1 KB");
  for (int i = 0; i < 100; ++i) barrierKernel<<<1, 1>>>();
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  // Stop the proxy after the application is finished
  proxyService.stopProxy();
  bootstrap->barrier();
}

}  // namespace

int main() {
  return launch::ranksOnGpus(2, 2, run);
}
