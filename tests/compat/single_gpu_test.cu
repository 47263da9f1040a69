// MSCCL++'s interface on one GPU: the README's custom proxy, barriers of blocks, streams and memory, and connections of
// a rank with itself.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <mscclpp/bulk_device.hpp>
#include <mscclpp/concurrency_device.hpp>
#include <mscclpp/core.hpp>
#include <mscclpp/gpu_data_types.hpp>
#include <mscclpp/gpu_utils.hpp>
#include <mscclpp/memory_channel.hpp>
#include <mscclpp/memory_channel_device.hpp>
#include <mscclpp/npkit/npkit.hpp>
#include <mscclpp/port_channel.hpp>
#include <mscclpp/port_channel_device.hpp>
#include <mscclpp/proxy.hpp>
#include <mscclpp/switch_channel.hpp>

// clang-format off

// The README's, word for word but for "..." and a letter, and but for the counters by which the test looks on.
// Proxy FIFO is obtained from mscclpp::Proxy on the host and copied to the device.
__device__ mscclpp::FifoDeviceHandle fifo;
__global__ void gpuKernel() {
// Only one thread is needed for the following
mscclpp::ProxyTrigger trigger;
// Send a custom request: "1"
trigger.fst = 1;
fifo.push(trigger);
// Send a custom request: "2"
trigger.fst = 2;
fifo.push(trigger);
// Send a custom request: "0xdeadbeef"
trigger.fst = 0xdeadbeef;
fifo.push(trigger);
}
std::atomic<int> ones, twos, deadbeefs;
// Host-side custom proxy service
class CustomProxyService {
private:
mscclpp::Proxy proxy_;
public:
CustomProxyService() : proxy_([&](mscclpp::ProxyTrigger trigger) {
// Custom trigger handler
if (trigger.fst == 1) {
// Handle request "1"
++ones;
} else if (trigger.fst == 2) {
// Handle request "2"
++twos;
} else if (trigger.fst == 0xdeadbeef) {
// Handle request "0xdeadbeef"
++deadbeefs;
}
},
[&]() { /* Empty proxy initializer */ }) {}
void startProxy() { proxy_.start(); }
void stopProxy() { proxy_.stop(); }
std::shared_ptr<mscclpp::Fifo> fifo() { return proxy_.fifo(); }
};

// clang-format on

using namespace mscclpp;

namespace {

__device__ DeviceSyncer syncer;
__device__ DeviceSemaphore turns;

// Every block adds to a cell and, after the barrier, finds all additions.
__global__ void countBlocks(unsigned* cells, int rounds, int* wrong) {
  for (int round = 0; round < rounds; ++round) {
    if (threadIdx.x == 0) atomicAdd(&cells[round], 1u);
    syncer.sync(gridDim.x);
    if (atomicLoad<unsigned, scopeDevice>(&cells[round], memoryOrderRelaxed) != gridDim.x) atomicAdd(wrong, 1);
  }
}

// Blocks increment a non-atomic number in mutual exclusion.
__global__ void takeTurns(int* number) {
  if (threadIdx.x != 0) return;
  for (int i = 0; i < 100; ++i) {
    turns.acquire();
    *static_cast<volatile int*>(number) = *number + 1;
    turns.release();
  }
}
__global__ void setTurns(int value) {
  turns.set(value);
}

// One thread block sends to itself, by packets and by copy.
__global__ void sendToSelf(DeviceHandle<MemoryChannel> channel, int* wrong) {
  channel.putPackets<LL8Packet>(0, 0, 512, threadIdx.x, blockDim.x, 3);
  channel.unpackPackets<LL8Packet>(0, 512, 512, threadIdx.x, blockDim.x, 3, -1);
  __syncthreads();
  const auto* src = reinterpret_cast<const int*>(channel.src_);
  for (int i = threadIdx.x; i < 128; i += blockDim.x) {
    if (src[128 + i] != src[i]) atomicAdd(wrong, 1);
  }
  if (threadIdx.x == 0) {
    channel.signal();
    channel.wait();
    if (channel.poll()) atomicAdd(wrong, 1);
  }
}

__constant__ DeviceHandle<PortChannel> port;
__constant__ FifoDeviceHandle constFifo;

__global__ void pushMany(uint64_t pushes, int* wrong) {
  FifoDeviceHandle& handle = constFifo;
  for (uint64_t i = 1; i <= pushes; ++i) {
    ProxyTrigger trigger;
    trigger.fst = i;
    trigger.snd = i;
    const uint64_t position = handle.push(trigger);
    if (i % handle.size != 0) continue;
    handle.sync(position);
    if (!handle.poll(position)) atomicAdd(wrong, 1);
  }
  handle.push(ProxyTrigger(TriggerData | TriggerFlag, 3, 16, 5, 32, 64, 9));
  handle.push(ProxyTrigger(0, 0), -1);
}

__global__ void putToSelf(size_t bytes) {
  port.putWithSignalAndFlush(0, 0, bytes);
  port.wait();
  port.put(bytes, 0, bytes);
  port.signal();
  port.flush(-1);
  port.wait(-1);
}

__global__ void rawBytes(DeviceHandle<PortChannel> given, DeviceHandle<PortChannel>* out) {
  *out = given;
}

__global__ void convert(const f32x4* in, f16x4* halves, f8_e4m3b15x4* small, f32x4* back) {
  halves[0] = to<f16x4>(in[0]);
  small[0] = to<f8_e4m3b15x4>(halves[0]);
  back[0] = to<f32x4>(small[0] + small[0]);
}

__global__ void bulk(const int* from, int* to) {
#if MSCCLPP_BULK_AVAILABLE
  __shared__ alignas(16) int buffer[64];
  __shared__ BulkBarrier barrier;
  if (threadIdx.x != 0) return;
  barrier.init();
  uint32_t phase = 0;
  barrier.arriveAndExpect(sizeof(buffer));
  bulkLoad(buffer, from, sizeof(buffer), barrier);
  barrier.wait(phase, 10000000);
  bulkStore(to, buffer, sizeof(buffer));
  bulkStoreCommit();
  bulkStoreWait();
  bulkReduceStore<uint32_t, BulkRedOp::Add>(reinterpret_cast<uint32_t*>(to), reinterpret_cast<uint32_t*>(buffer),
                                            sizeof(buffer));
  bulkStoreCommit();
  bulkStoreWaitSource<0>();
  bulkStoreWait<0>();
#endif
}

/// Compiled, never run: it needs a switch.
[[maybe_unused]] __global__ void reduceInSwitch(DeviceHandle<SwitchChannel> channel, float* plain) {
  if (threadIdx.x == 0) {
    channel.signal();
    channel.wait();
    channel.relaxedSignal();
    channel.relaxedWait();
  }
  __syncthreads();
  channel.broadcast(threadIdx.x, channel.reduce<f32x4>(threadIdx.x));
  channel.broadcast<f16x8>(threadIdx.x, channel.reduce<f16x8>(threadIdx.x));
  auto* everywhere = reinterpret_cast<bf16x8*>(channel.mcPtr);
  const auto sum = SwitchChannelDeviceHandle::multimemLoadReduce(everywhere);
  SwitchChannelDeviceHandle::multimemStore(sum, everywhere);
  SwitchChannelDeviceHandle::multimemStoreReduce(make_float4(1, 2, 3, 4), reinterpret_cast<float*>(channel.mcPtr));
  SwitchChannelDeviceHandle::multimemStoreReduce(make_uint2(1, 2), static_cast<float*>(channel.mcPtr));
  SwitchChannelDeviceHandle::multimemStoreReduce(make_uint1(1), static_cast<float*>(channel.mcPtr));
  auto* pairs = static_cast<__half2*>(channel.mcPtr);
  SwitchChannelDeviceHandle::multimemStoreReduce(make_uint4(1, 2, 3, 4), pairs);
  SwitchChannelDeviceHandle::multimemStoreReduce(make_uint2(1, 2), pairs);
  SwitchChannelDeviceHandle::multimemStoreReduce(make_uint1(1), pairs);
  plain[0] = static_cast<float*>(channel.devicePtr)[channel.bufferSize / 4 - 1];
}

std::shared_ptr<Communicator> singleRankCommunicator() {
  auto bootstrap = std::make_shared<TcpBootstrap>(0, 1);
  bootstrap->initialize(TcpBootstrap::createUniqueId());
  return std::make_shared<Communicator>(bootstrap);
}

}  // namespace

TEST_CASE("compat gpu: the README's custom proxy receives its three requests") {
  CustomProxyService service;
  const auto handle = service.fifo()->deviceHandle();
  MSCCLPP_CUDATHROW(cudaMemcpyToSymbol(fifo, &handle, sizeof(handle)));
  service.startProxy();
  for (int i = 0; i < 100; ++i) gpuKernel<<<1, 1>>>();
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  service.stopProxy();
  CHECK(ones == 100);
  CHECK(twos == 100);
  CHECK(deadbeefs == 100);
}

TEST_CASE("compat gpu: a FIFO of sixteen slots wraps around many times, from constant memory") {
  Fifo host(16);
  const auto handle = host.deviceHandle();
  CHECK(handle.size == 16);
  CHECK(handle.sizeMask == 15);
  CHECK(handle.sizeShift == 4);
  MSCCLPP_CUDATHROW(cudaMemcpyToSymbol(constFifo, &handle, sizeof(handle)));
  auto wrong = detail::gpuCallocHostShared<int>();
  constexpr uint64_t pushes = 10000;
  pushMany<<<1, 1>>>(pushes, wrong.get());
  ProxyTrigger trigger;
  const auto take = [&] {
    const auto start = std::chrono::steady_clock::now();
    while (!host.poll(trigger)) {
      REQUIRE(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
    }
    host.pop();
  };
  uint64_t outOfOrder = 0;
  for (uint64_t i = 1; i <= pushes; ++i) {
    take();
    outOfOrder += trigger.fst != i || trigger.snd != i;
  }
  CHECK(outOfOrder == 0);
  take();
  CHECK(trigger.fst == (32ull << 32 | 64));
  CHECK(trigger.snd == (9ull << 53 | 3ull << 50 | 3ull << 41 | 5ull << 32 | 16));
  take();
  CHECK((trigger.fst | trigger.snd) == 0);
  CHECK(host.tail() == pushes + 2);
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  CHECK(*wrong == 0);
}

TEST_CASE("compat gpu: barriers of blocks, and device semaphores") {
  auto cells = detail::gpuCallocShared<unsigned>(1000);
  auto wrong = detail::gpuCallocHostShared<int>();
  for (int blocks : {1, 2, 60, 7}) {
    gpuMemset(cells.get(), 0, 4000);
    countBlocks<<<blocks, 64>>>(cells.get(), 1000, wrong.get());
    MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
    CHECK(*wrong == 0);
  }
  auto number = detail::gpuCallocUnique<int>();
  setTurns<<<1, 1>>>(1);
  takeTurns<<<20, 32>>>(number.get());
  int total = 0;
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  gpuMemcpy(&total, number.get(), 1, cudaMemcpyDeviceToHost);
  CHECK(total == 2000);
}

TEST_CASE("compat gpu: streams, guards, buffers, errors") {
  cudaStream_t first;
  {
    auto stream = gpuStreamPool()->getStream();
    first = stream;
    CHECK(stream.deviceId() == 0);
    auto other = gpuStreamPool()->getStream();
    CHECK(static_cast<cudaStream_t>(other) != first);
  }
  CHECK(static_cast<cudaStream_t>(gpuStreamPool()->getStream()) == first);
  gpuStreamPool()->clear();
  const CudaDeviceGuard guard(0);
  const AvoidCudaGraphCaptureGuard avoid;
  CudaStreamWithFlags empty;
  CHECK(empty.empty());
  GpuBuffer<float> buffer(100);
  CHECK(buffer.nelems() == 100);
  CHECK(buffer.bytes() >= 400);
  CHECK(buffer.memory().get() == buffer.data());
  CHECK(detail::gpuIdFromAddress(buffer.data()) == buffer.deviceId());
  CHECK(GpuBuffer<int>(0).data() == nullptr);
  std::vector<float> zeros(100, 1);
  gpuMemcpy(zeros.data(), buffer.data(), 100);
  CHECK(zeros == std::vector<float>(100));
  auto physical = detail::gpuCallocPhysicalShared<char>(100);
  CHECK(isCuMemMapAllocated(physical.get()));
  try {
    MSCCLPP_CUDATHROW(cudaSetDevice(10000));
    FAIL("there is no such device");
  } catch (const CudaError& error) {
    CHECK(error.getErrorCode() == cudaErrorInvalidDevice);
    CHECK(std::string(error.what()).find("single_gpu_test.cu:") != std::string::npos);
    CHECK(std::string(error.what()).find("Cuda failure") != std::string::npos);
  }
  cudaDeviceProp properties{};
  MSCCLPP_CUDATHROW(cudaGetDeviceProperties(&properties, 0));
  CHECK(isBulkSupported() == (properties.major >= 9));
}

TEST_CASE("compat gpu: a rank's channels with itself") {
  auto comm = singleRankCommunicator();
  const TransportFlags transport = Transport::CudaIpc;
  GpuBuffer<int> source(1024), target(4096);
  std::vector<int> numbers(1024);
  for (int i = 0; i < 1024; ++i) numbers[i] = 3 * i + 1;
  gpuMemcpy(source.data(), numbers.data(), 1024, cudaMemcpyHostToDevice);
  auto local = comm->registerMemory(source.data(), source.bytes(), transport);
  comm->sendMemory(comm->registerMemory(target.data(), target.bytes(), transport), 0);
  auto remote = comm->recvMemory(0).get();
  CHECK(remote.data() == target.data());
  auto connection = comm->connect(Transport::CudaIpc, 0).get();

  auto semaphore = std::make_shared<MemoryDevice2DeviceSemaphore>(*comm, connection);
  MemoryChannel channel(semaphore, remote, local, target.data());
  auto wrong = detail::gpuCallocHostShared<int>();
  sendToSelf<<<1, 64>>>(deviceHandle(channel), wrong.get());
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  CHECK(*wrong == 0);
  CHECK_THROWS_AS(MemoryChannel(semaphore, comm->registerMemory(target.data(), 4, NoTransports), local), Error);

  gpuMemcpy(source.data(), numbers.data(), 1024, cudaMemcpyHostToDevice);
  ProxyService service;
  CHECK_THROWS_AS(service.nextMemoryId(0), Error);
  const auto id = service.buildAndAddSemaphore(*comm, connection);
  const auto dst = service.addMemory(remote), src = service.addMemory(local);
  CHECK(dst == 0);
  CHECK(src == 1);
  const PortChannel portChannel = service.portChannel(id, dst, src);
  const auto handle = deviceHandle(portChannel);
  MSCCLPP_CUDATHROW(cudaMemcpyToSymbol(port, &handle, sizeof(handle)));
  service.startProxy();
  putToSelf<<<1, 1>>>(4096);
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  service.stopProxy();
  std::vector<int> arrived(2048);
  gpuMemcpy(arrived.data(), target.data(), 2048, cudaMemcpyDeviceToHost);
  for (int i = 0; i < 2048; ++i) CHECK(arrived[i] == numbers[i % 1024]);

  // A handle is trivially copyable and may be passed to a kernel in any way.
  auto out = detail::gpuCallocHostShared<std::array<char, sizeof(handle)>>();
  rawBytes<<<1, 1>>>(handle, reinterpret_cast<DeviceHandle<PortChannel>*>(out.get()));
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  const auto* copied = reinterpret_cast<const DeviceHandle<PortChannel>*>(out.get());
  CHECK(copied->src_ == src);
  CHECK(copied->fifo_.triggers == handle.fifo_.triggers);
  static_assert(std::is_trivially_copyable_v<DeviceHandle<MemoryChannel>>);
  CHECK_THROWS_AS(Fifo(500), Error);
}

TEST_CASE("compat gpu: vectors of elements and bulk copies") {
  struct Results {
    f32x4 in, back;
    f16x4 halves;
    f8_e4m3b15x4 small;
  };
  auto results = detail::gpuCallocHostShared<Results>();
  results->in = {{0.25f, -1.0f, 5.0f, 0.6f}};
  convert<<<1, 1>>>(&results->in, &results->halves, &results->small, &results->back);
  auto ints = detail::gpuCallocHostShared<std::array<int, 128>>();
  for (int i = 0; i < 64; ++i) (*ints)[i] = i;
  auto from = detail::gpuCallocShared<int>(128);
  gpuMemcpy(from.get(), ints->data(), 64, cudaMemcpyHostToDevice);
  bulk<<<1, 32>>>(from.get(), from.get() + 64);
  MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
  CHECK(__half2float(results->halves.data[3]) == __half2float(__float2half(0.6f)));
  CHECK(results->small.words[0] == to<f8_e4m3b15x4>(results->halves).words[0]);
  CHECK(results->back.data[0] == 0.5f);
  CHECK(results->back.data[1] == -1.875f);
  CHECK(results->back.data[2] == 1.875f);
  gpuMemcpy(ints->data(), from.get(), 128, cudaMemcpyDeviceToHost);
  for (int i = 0; i < 64; ++i) CHECK((*ints)[64 + i] == 2 * i);
}
