#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "mscclpp/host/cuda/gpu_guard.hpp"
#include "mscclpp/host/cuda/gpu_memory.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "mscclpp/host/transport/connection.hpp"
#include "mscclpp/host/transport/context.hpp"
#include "tests/host/process_resources.hpp"
#include "tests/host/ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

template <typename T>
std::vector<T> onHost(const T* data, std::size_t nelems) {
  std::vector<T> host(nelems);
  gpuMemcpy(host.data(), data, nelems);
  return host;
}

template <typename T>
bool allZero(const std::vector<T>& values) {
  return std::all_of(values.begin(), values.end(), [](T value) { return value == T{0}; });
}

__global__ void addOne(int* data, int nelems) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < nelems) ++data[i];
}

}  // namespace

TEST_CASE("a GPU buffer is zero, as large as asked, and usable by kernels") {
  int device = -1;
  MSCCLPP_CUDATHROW(cudaGetDevice(&device));
  for (std::size_t nelems : {std::size_t{1}, std::size_t{1000}, std::size_t{3} << 20}) {
    const GpuBuffer<int> buffer(nelems);
    CHECK(buffer.nelems() == nelems);
    CHECK(buffer.bytes() >= nelems * sizeof(int));
    CHECK(buffer.deviceId() == device);
    CHECK(buffer.memory().get() == buffer.data());
    CHECK(detail::gpuIdFromAddress(buffer.data()) == device);
    CHECK(allZero(onHost(buffer.data(), buffer.bytes() / sizeof(int))));
    addOne<<<static_cast<unsigned>((nelems + 255) / 256), 256>>>(buffer.data(), static_cast<int>(nelems));
    MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
    const auto values = onHost(buffer.data(), nelems);
    CHECK(std::all_of(values.begin(), values.end(), [](int value) { return value == 1; }));
  }
  const GpuBuffer<> recommended(5, GpuBufferGranularity::MultiCastRecommended);
  CHECK(recommended.bytes() >= 5);
}

TEST_CASE("an empty GPU buffer, and one too large") {
  const GpuBuffer<double> empty(0);
  CHECK(empty.data() == nullptr);
  CHECK(empty.memory() == nullptr);
  CHECK(empty.bytes() == 0);
  CHECK(empty.nelems() == 0);
  CHECK(empty.deviceId() == -1);
  CHECK_THROWS_AS(GpuBuffer<double>(SIZE_MAX), Error);
  CHECK_THROWS_AS(GpuBuffer<char>(SIZE_MAX), Error);
  CHECK_THROWS_AS(GpuBuffer<char>(std::size_t{1} << 50), BaseError);
  const GpuBuffer<char> afterwards(1);  // a failed allocation leaves no error behind
  MSCCLPP_CUDATHROW(cudaGetLastError());
}

TEST_CASE("GPU memory is released") {
  { const GpuBuffer<char> warmUp(1); }
  std::size_t before = 0;
  std::size_t after = 0;
  std::size_t total = 0;
  MSCCLPP_CUDATHROW(cudaMemGetInfo(&before, &total));
  for (int i = 0; i < 200; ++i) {
    const GpuBuffer<char> buffer(std::size_t{1} << 30);
    auto other = detail::gpuCallocShared<char>(std::size_t{1} << 30);
  }
  MSCCLPP_CUDATHROW(cudaMemGetInfo(&after, &total));
  // Other processes may use the GPU, but 400 leaked gigabytes would not go unnoticed.
  CHECK(after + (std::size_t{8} << 30) > before);
}

TEST_CASE("the memory functions") {
  auto device = detail::gpuCallocUnique<int>(100);
  auto host = detail::gpuCallocHostShared<int>(100);
  auto physical = detail::gpuCallocPhysicalShared<int>(100);
  CHECK(allZero(onHost(device.get(), 100)));
  CHECK(allZero(onHost(physical.get(), 100)));
  CHECK(std::all_of(host.get(), host.get() + 100, [](int value) { return value == 0; }));
  CHECK(detail::gpuIdFromAddress(host.get()) == -1);
  CHECK(isCuMemMapAllocated(physical.get()));
  CHECK_FALSE(isCuMemMapAllocated(device.get()));
  std::iota(host.get(), host.get() + 100, 0);
  gpuMemcpy(device.get(), host.get(), 100, cudaMemcpyHostToDevice);
  {
    const CudaStreamWithFlags stream(cudaStreamNonBlocking);
    gpuMemcpyAsync(physical.get(), device.get(), 100, stream);
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
  }
  CHECK(onHost(physical.get(), 100)[99] == 99);
  gpuMemset(device.get(), 1, 4);
  CHECK(onHost(device.get(), 2) == std::vector<int>{0x01010101, 1});
  CHECK(detail::gpuCalloc(0) == nullptr);
  CHECK(detail::getCuAllocationGranularity(CU_MEM_ALLOC_GRANULARITY_MINIMUM) > 0);
}

TEST_CASE("guards and streams") {
  int device = -1;
  MSCCLPP_CUDATHROW(cudaGetDevice(&device));
  {
    CudaDeviceGuard guard(device);
    CudaDeviceGuard none(-1);
  }
  CHECK_THROWS_AS(CudaDeviceGuard(1000), CudaError);
  CudaStreamWithFlags stream;
  CHECK(stream.empty());
  stream.set(cudaStreamNonBlocking);
  CHECK_FALSE(stream.empty());
  CHECK(stream.deviceId() == device);
  CHECK_THROWS_AS(stream.set(cudaStreamNonBlocking), Error);
  CudaStreamWithFlags moved = std::move(stream);
  CHECK(stream.empty());  // NOLINT: a moved-from stream is empty
  MSCCLPP_CUDATHROW(cudaStreamSynchronize(moved));
  CHECK(isBulkSupported() == isBulkSupported());
}

TEST_CASE("memory is allocated and initialized while a stream is being captured") {
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  auto counted = detail::gpuCallocUnique<int>(1);
  cudaGraph_t graph = nullptr;
  MSCCLPP_CUDATHROW(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  addOne<<<1, 1, 0, stream>>>(counted.get(), 1);
  const GpuBuffer<int> buffer(10);
  const auto plain = detail::gpuCallocShared<int>(10);
  CHECK(allZero(onHost(buffer.data(), 10)));
  MSCCLPP_CUDATHROW(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable = nullptr;
  MSCCLPP_CUDATHROW(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 3; ++i) MSCCLPP_CUDATHROW(cudaGraphLaunch(executable, stream));
  MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
  CHECK(onHost(counted.get(), 1)[0] == 3);
  MSCCLPP_CUDATHROW(cudaGraphExecDestroy(executable));
  MSCCLPP_CUDATHROW(cudaGraphDestroy(graph));
}

TEST_CASE("the error of a failed CUDA call contains the call, its place and the reason") {
  try {
    MSCCLPP_CUDATHROW(cudaSetDevice(-5));
    FAIL("nothing was thrown");
  } catch (const CudaError& error) {
    const std::string text = error.what();
    CHECK(text.find("cudaSetDevice(-5)") != std::string::npos);
    CHECK(text.find("gpu_buffer_test.cu") != std::string::npos);
    CHECK(text.find("invalid device ordinal") != std::string::npos);
    CHECK(error.getErrorCode() == cudaErrorInvalidDevice);
  }
  MSCCLPP_CUDATHROW(cudaGetLastError());
  CHECK_THROWS_AS(MSCCLPP_CUTHROW(CUDA_ERROR_INVALID_VALUE), CuError);
}

TEST_CASE("registration distinguishes GPU memory from host memory, and checks its size") {
  const std::size_t descriptors = openDescriptors();
  {
    auto context = Context::create();
    std::vector<char> plain(64);
    HostBuffer host(64);
    CHECK_THROWS_WITH_AS(context->registerMemory(plain.data(), 64, Transport::CudaIpc), doctest::Contains("GpuBuffer"),
                         Error);
    CHECK_THROWS_AS(context->registerMemory(host.data(), 64, Transport::CudaIpc), Error);
    const GpuBuffer<char> buffer(1000);
    CHECK_THROWS_AS(context->registerMemory(buffer.data(), buffer.bytes() + 1, Transport::CudaIpc), Error);
    CHECK_THROWS_AS(context->registerMemory(buffer.data() + 8, buffer.bytes(), Transport::CudaIpc), Error);
    CHECK_THROWS_AS(context->registerMemory(buffer.data(), 8, Transport::SharedMemory), Error);
    const auto memory = context->registerMemory(buffer.data() + 100, 900, Transport::CudaIpc);
    const auto again = RegisteredMemory::deserialize(memory.serialize());
    CHECK(again.data() == buffer.data() + 100);
    const auto plainGpu = detail::gpuCallocShared<char>(100);
    CHECK(context->registerMemory(plainGpu.get() + 10, 90, Transport::CudaIpc).size() == 90);
  }
  CHECK(openDescriptors() == descriptors);
}

TEST_CASE("a forked child destroys its copies without a call of CUDA") {
  struct Resources {
    GpuBuffer<int> buffer{1000};
    detail::UniqueGpuPtr<int> memory = detail::gpuCallocUnique<int>(1000);
    detail::UniqueGpuHostPtr<int> pinned = detail::gpuCallocHostUnique<int>(1000);
    CudaStreamWithFlags stream{cudaStreamNonBlocking};
    std::shared_ptr<Context> context = Context::create();
    RegisteredMemory registered = context->registerMemory(buffer.data(), 4000, Transport::CudaIpc);
    Endpoint endpoint = context->createEndpoint({Transport::Ethernet, DeviceType::GPU});  // has events and a stream
    Connection connection;

    Resources() {
      const EndpointConfig config{Transport::CudaIpc, DeviceType::GPU};
      connection = context->connect(context->createEndpoint(config), context->createEndpoint(config));
      connection.write(registered, 0, registered, 2000, 2000);
      connection.flush();
    }
  };
  auto resources = std::make_unique<Resources>();
  // A thread inside CUDA at the fork may hold its locks.
  std::atomic<bool> stopping{false};
  std::thread busy([&] {
    while (!stopping) GpuBuffer<>(std::size_t{1} << 20);
  });
  for (int round = 0; round < 20; ++round) {
    ChildProcess child([&] {
      ::alarm(20);
      resources.reset();
    });
    CHECK(child.wait() == "");
  }
  stopping = true;
  busy.join();
  addOne<<<4, 256, 0, resources->stream>>>(resources->buffer.data(), 1000);
  MSCCLPP_CUDATHROW(cudaStreamSynchronize(resources->stream));
  const auto values = onHost(resources->buffer.data(), 1000);
  CHECK(std::all_of(values.begin(), values.end(), [](int value) { return value == 1; }));
}
