// All overloads of MSCCL++'s interface and conversions of their arguments. Compiled, never called.
#include <mscclpp/assert_device.hpp>
#include <mscclpp/atomic_device.hpp>
#include <mscclpp/bulk_device.hpp>
#include <mscclpp/concurrency_device.hpp>
#include <mscclpp/copy_device.hpp>
#include <mscclpp/core.hpp>
#include <mscclpp/gpu_utils.hpp>
#include <mscclpp/memory_channel.hpp>
#include <mscclpp/npkit/npkit.hpp>
#include <mscclpp/poll_device.hpp>
#include <mscclpp/port_channel.hpp>
#include <mscclpp/proxy_channel.hpp>
#include <mscclpp/sm_channel.hpp>
#include <mscclpp/switch_channel.hpp>
#include <mscclpp/version.hpp>

#pragma nv_diag_suppress 1444, 177  // the older names; unused declarations
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

using namespace mscclpp;

#if !defined(MSCCLPP_DEVICE_COMPILE) || !defined(MSCCLPP_DEVICE_CUDA) || !CUDA_NVLS_API_AVAILABLE
#error "nvcc compiles for devices of CUDA"
#endif

namespace {

MSCCLPP_DEVICE_INLINE int onDevice() {
  return 1;
}
MSCCLPP_HOST_DEVICE_INLINE int onBoth() {
  return MSCCLPP_MAJOR + MSCCLPP_MINOR + MSCCLPP_PATCH;
}

template <class Handle>
constexpr bool isPlain = std::is_trivially_copyable_v<Handle>&& std::is_trivially_default_constructible_v<Handle>;
static_assert(isPlain<Host2DeviceSemaphoreDeviceHandle> && isPlain<MemoryDevice2DeviceSemaphoreDeviceHandle> &&
              isPlain<SwitchDevice2DeviceSemaphoreDeviceHandle>);
static_assert(isPlain<BaseMemoryChannelDeviceHandle> && isPlain<MemoryChannelDeviceHandle> &&
              isPlain<SwitchChannelDeviceHandle>);
static_assert(isPlain<BasePortChannelDeviceHandle> && isPlain<PortChannelDeviceHandle> && isPlain<FifoDeviceHandle>);
static_assert(std::is_same_v<LLPacket, LL16Packet> && sizeof(LL16Packet) == 16 && sizeof(LL8Packet) == 8);
static_assert(std::is_same_v<DeviceHandle<SimpleProxyChannel>, PortChannelDeviceHandle>);
static_assert(std::is_same_v<DeviceHandle<SmChannel>, SmChannelDeviceHandle>);
static_assert(std::is_same_v<BaseSmChannelDeviceHandle, BaseMemoryChannelDeviceHandle>);
static_assert(std::is_same_v<SmDevice2DeviceSemaphoreDeviceHandle, MemoryDevice2DeviceSemaphoreDeviceHandle>);

__constant__ SwitchChannelDeviceHandle constSwitch;

// Arguments of every integer type that users pass: literals, threadIdx, size_t, int.
[[maybe_unused]] __global__ void memoryChannels(MemoryChannelDeviceHandle channel, std::size_t bytes,
                                                std::uint32_t flag) {
  const int tid = threadIdx.x, threads = blockDim.x;
  const auto use = [&](auto offset, auto size, auto thread, auto count) {
    channel.put(offset, size, thread, count);
    channel.put(offset, offset, size, thread, count);
    channel.put<8>(offset, offset, size, thread, count);
    channel.put<4, false>(offset, size, thread, count);
    channel.get(offset, size, thread, count);
    channel.get<16, true>(offset, offset, size, thread, count);
    channel.putPackets(offset, size, thread, count, flag);
    channel.putPackets<LL8Packet>(offset, offset, size, thread, count, flag);
    channel.unpackPackets(offset, size, thread, count, flag);
    channel.unpackPackets<LL16Packet>(offset, offset, size, thread, count, flag);
    channel.unpackPackets(offset, offset, size, thread, count, flag, 1000000);
    channel.getPackets(offset, size, thread, count, flag);
    copy(channel.dst_, channel.src_, size, thread, count);
    copy<4, false>(channel.dst_, channel.src_, size, thread, count);
    copyToPackets(channel.packetBuffer_, channel.src_, size, thread, count, flag);
    copyFromPackets<LL8Packet>(channel.dst_, channel.packetBuffer_, size, thread, count, flag, -1);
  };
  use(0, 1024, 0, 1);
  use(0, bytes, threadIdx.x, blockDim.x);
  use(bytes, bytes, tid, threads);
  channel.unpackPackets<LL8Packet>(0, bytes, threadIdx.x, blockDim.x, flag, -1);
  channel.put(0, 0, bytes, tid, blockDim.x * gridDim.x);
  channel.write(0, channel.read<int>(tid));
  channel.write<std::uint64_t>(flag, 5);
  uint2 pair = channel.unpackPacket(tid, flag);
  std::uint32_t word = channel.unpackPacket<LL8Packet>(tid, flag, 100);

  LL16Packet wide(pair, flag);
  LL8Packet narrow(word, flag);
  wide.write(1, 2, 3);
  wide.write(pair, 3);
  wide.write(std::uint64_t{5}, 3);
  wide.raw_ = make_ulonglong2(1, 2);
  narrow.raw_ = wide.raw_.x;
  narrow.write(1, 2);
  if (!wide.readOnce(flag, pair) && !narrow.readOnce(flag, word)) pair = wide.read(flag, -1);
  word = narrow.read(flag) + narrow.read(flag, 100) + wide.data1 + wide.flag1 + wide.data2 + wide.flag2;
  narrow.clear();
  wide.clear();
  static_cast<LLPacket*>(channel.packetBuffer_)[word] = wide;
}

[[maybe_unused]] __global__ void portChannels(PortChannelDeviceHandle channel, MemoryId dst, MemoryId src,
                                              std::size_t bytes, std::int64_t maxSpinCount) {
  BasePortChannelDeviceHandle base(channel.semaphoreId_, channel.semaphore_, channel.fifo_, channel.flushDonePos_);
  PortChannelDeviceHandle same(channel.semaphoreId_, channel.semaphore_, channel.fifo_, dst, src,
                               channel.flushDonePos_);
  const auto use = [&](auto offset, auto size) {
    base.put(dst, offset, src, offset, size);
    base.put(dst, src, offset, size);
    base.putWithSignal(dst, offset, src, offset, size);
    base.putWithSignal(dst, src, offset, size);
    base.putWithSignalAndFlush(dst, offset, src, offset, size);
    base.putWithSignalAndFlush(dst, offset, src, offset, size, -1);
    base.putWithSignalAndFlush(dst, src, offset, size);
    base.putWithSignalAndFlush(dst, src, offset, size, maxSpinCount);
    same.put(offset, size);
    same.put(offset, offset, size);
    same.put(dst, src, offset, size);
    same.putWithSignal(offset, size);
    same.putWithSignal(offset, offset, size);
    same.putWithSignal(dst, offset, src, offset, size);
    same.putWithSignalAndFlush(offset, size);
    same.putWithSignalAndFlush(offset, offset, size);
    same.putWithSignalAndFlush(offset, offset, size, -1);
    same.putWithSignalAndFlush(offset, size, maxSpinCount);
  };
  use(0, 1024);
  use(bytes, bytes);
  same.signal();
  same.flush();
  same.flush(-1);
  same.waitFlush(7);
  base.waitFlush(7, maxSpinCount);
  if (!same.poll()) same.wait();
  base.wait(10000000);
  ProxyTrigger trigger(TriggerData | TriggerSync, dst, bytes, src, bytes, bytes, base.semaphoreId_);
  const std::uint64_t position = channel.fifo_.push(trigger, 1000000);
  if (!channel.fifo_.poll(position)) channel.fifo_.sync(position, maxSpinCount);
}

[[maybe_unused]] __global__ void synchronisation(BaseMemoryChannelDeviceHandle channel,
                                                 SwitchDevice2DeviceSemaphoreDeviceHandle barrier, int* number) {
  channel.wait();
  channel.wait(-1);
  channel.relaxedWait(100);
  channel.semaphore_.incExpectedInbound();
  barrier.signal();
  barrier.wait(-1);
  if (barrier.nRanks > 1 && *barrier.localBarrierFlag < *barrier.barrierGen) barrier.relaxedWait();
  __syncshm();
  static_assert(DeviceSyncer::NumCounters == 3);
  __shared__ DeviceSyncer syncer;
  syncer.sync(gridDim.x, -1);
  DeviceSemaphore semaphore(1);
  semaphore.acquire(100);
  POLL_MAYBE_JAILBREAK(atomicLoad(number, memoryOrderAcquire) != 7, 100);
  OR_POLL_MAYBE_JAILBREAK(*number != 7, *number == 8, -1);
  MSCCLPP_ASSERT_DEVICE(*number == 7, "it was waited for");
  atomicStore<int, scopeDevice>(number, atomicFetchAdd(number, 1, memoryOrderAcqRel), memoryOrderRelease);
  constSwitch.broadcast(0, constSwitch.reduce<f32x1>(0));
  __shared__ NpKitEvent events[64];
  std::uint64_t head = 0;
  NpKit::CollectGpuEventShm(1, 2, 3, clock64(), events, &head);
  NpKit::StoreGpuEventShm(nullptr, events, head);
  *number = onDevice() + onBoth();
}

#if !defined(__FP8_TYPES_EXIST__)
#error "there are fp8 types"
#endif

[[maybe_unused]] __global__ void vectors(float4* floats, __half2* pairs, std::uint32_t* words, __fp8_e4m3* eights) {
  __shared__ f32x4 staged[32];
  f32x4 vector = floats[0];
  staged[threadIdx.x % 32] = vector;
  float4 stored = vector + staged[0];
  const float* elements = vector;
  stored.x = elements[0] + vector[threadIdx.x % 4u];
  floats[0] = stored;
  f16x2 pair = pairs[0];
  pairs[1] = pair + pair;
  words[0] = bit_cast<std::uint32_t>(pairs[0]);
  pairs[2] = bit_cast<__half2>(words[1]);
  pairs[3] = mscclpp::min(pairs[0], pairs[1]);
  pairs[4] = clip(pairs[0]);
  u8x4 bytes = words[2];
  words[3] = bytes;
  const u32x4 four = make_uint4(1, 2, 3, 4);
  const f16x8 halves = static_cast<uint4>(four);
  words[4] = halves.words[1] + bit_cast<std::uint32_t>(pairs[5]);
  eights[0] = mscclpp::operator+<false>(eights[1], eights[2]);
  eights[1] = mscclpp::min(eights[1], eights[2]);
  const __fp8x4_e4m3b15 small(stored);
  words[5] = small.__x + __fp8x2_e4m3b15(make_float2(1, 2)).__x;
  words[6] = mscclpp::min(words[0], words[1]);
  f32x8 many{};
  const Words<32> raw = many;
  words[7] = raw[0];
  __shared__ alignas(16) std::uint32_t buffer[4];
  bulkReduceStore<float, BulkRedOp::Add>(words, buffer, 16);
}

[[maybe_unused]] void hostSide(std::shared_ptr<Communicator> comm, Connection connection, RegisteredMemory memory) {
  const ProxyHandler handler = [](ProxyTrigger) { return ProxyHandlerResult::Continue; };
  auto proxy = std::make_shared<Proxy>(
      handler, [] {}, 128);
  const Proxy plain(handler), sized(handler, 128);
  proxy->start(true);
  proxy->fifo()->flushTail(true);

  const Semaphore semaphore = comm->buildSemaphore(connection, 0).get();
  ProxyService service(1024);
  const SemaphoreId id = service.addSemaphore(semaphore);
  const std::shared_ptr<Host2DeviceSemaphore> host = service.semaphore(id);
  const SemaphoreId other = service.addSemaphore(host);
  const MemoryId first = service.nextMemoryId(), next = service.nextMemoryId(3);
  const BasePortChannel bases[] = {service.basePortChannel(id), {id, semaphore, proxy}, {other, host, proxy}};
  const PortChannel channels[] = {
      service.portChannel(id, first, next), {id, semaphore, proxy, first, next}, {other, host, proxy, first, next}};
  const auto device = std::make_shared<SmDevice2DeviceSemaphore>(*comm, connection);
  MemoryChannel memoryChannel(device, memory, memory);
  memoryChannel = SmChannel(semaphore, memory, memory, memory.data());
  const BaseMemoryChannel base(device);
  const std::tuple handles(deviceHandle(bases[0]), deviceHandle(channels[0]), deviceHandle(memoryChannel),
                           deviceHandle(base), deviceHandle(*device), deviceHandle(*host), Fifo().deviceHandle());

  NvlsConnection root(std::size_t{1} << 21, 2);
  NvlsConnection joined(root.serialize());
  SwitchChannel bound = joined.bindAllocatedMemory(reinterpret_cast<CUdeviceptr>(memory.data()), memory.size());
  joined.attachBarrier(2);
  bound = SwitchChannel(memory.data(), std::shared_ptr<char>(), memory.size());

  static_cast<void>(detail::getCuAllocationGranularity(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  static_cast<void>(detail::getMulticastGranularity(1, CU_MULTICAST_GRANULARITY_MINIMUM));
  detail::setReadWriteMemoryAccess(memory.data(), memory.size());
  detail::UniqueGpuPtr<int> onGpu = detail::gpuCallocUnique<int>();
  detail::UniqueGpuHostPtr<int> onHost = detail::gpuCallocHostUnique<int>(5);
  detail::UniqueGpuPhysicalPtr<int> physical = detail::gpuCallocPhysicalUnique<int>(5, 0, 0);
  std::unique_ptr<int, detail::GpuHostDeleter<int>> mapped = detail::gpuCallocHostUnique<int>(5, cudaHostAllocMapped);
  std::unique_ptr<int, detail::GpuPhysicalDeleter<>> aligned(detail::gpuCallocPhysicalUnique<int>(5).release());
  const std::shared_ptr<int> shared[] = {detail::gpuCallocPhysicalShared<int>(5, 0, 0),
                                         detail::gpuCallocHostShared<int>(5, cudaHostAllocMapped)};
  detail::gpuFree(detail::gpuCalloc(1));
  detail::gpuFreeHost(detail::gpuCallocHost(1, cudaHostAllocMapped));
  detail::gpuFreePhysical(detail::gpuCallocPhysical(1));
  const std::shared_ptr<float> kept = GpuBuffer<float>(5, GpuBufferGranularity::MultiCastRecommended).memory();
}

}  // namespace
