#include <algorithm>
#include <cstdint>

#include "mscclpp/arch/clock.hpp"
#include "mscclpp/host/cuda/gpu_memory.hpp"
#include "timing_kernels.hpp"

namespace mscclpp::perf {

namespace {

constexpr std::uint64_t maxDelayNanoseconds = 10'000;

/// One thread. *random is the state of the generator.
__global__ void delayKernel(std::uint64_t* random) {
  const std::uint64_t begin = arch::nanoseconds();
  const std::uint64_t next = *random * 6364136223846793005u + 1442695040888963407u;
  *random = next;
  const std::uint64_t duration = (next >> 33) % maxDelayNanoseconds;
  while (arch::nanoseconds() - begin < duration) {
  }
}

/// A range of bytes as words of 16 bytes, with what is before the first and behind the last.
struct WordRange {
  __device__ WordRange(const void* address, std::size_t bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    const std::size_t toAligned = (16 - begin % 16) % 16;
    head = toAligned < bytes ? toAligned : bytes;
    words = (bytes - head) / 16;
    tail = bytes - head - 16 * words;
  }
  std::size_t head;
  std::size_t words;
  std::size_t tail;
};

__global__ void produceKernel(unsigned char* to, std::size_t bytes) {
  const std::size_t first = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  const WordRange range(to, bytes);
  auto* words = reinterpret_cast<uint4*>(to + range.head);
  // Small positive numbers in every floating-point type: sums of many calls in place take long to overflow.
  constexpr unsigned value = 0x01010101u;
  for (std::size_t i = first; i < range.words; i += std::size_t{gridDim.x} * blockDim.x) {
    words[i] = make_uint4(value, value, value, value);
  }
  if (first < range.head) to[first] = value & 0xff;
  if (first < range.tail) to[bytes - 1 - first] = value & 0xff;
}

__global__ void consumeKernel(const unsigned char* from, std::size_t bytes, unsigned* sink) {
  const std::size_t first = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  const WordRange range(from, bytes);
  const auto* words = reinterpret_cast<const uint4*>(from + range.head);
  unsigned sum = 0;
  for (std::size_t i = first; i < range.words; i += std::size_t{gridDim.x} * blockDim.x) {
    const uint4 word = words[i];
    sum += (word.x ^ word.y) + (word.z ^ word.w);
  }
  if (first < range.head) sum += from[first];
  if (first < range.tail) sum += from[bytes - 1 - first];
  if (sum == 0x8badf00du) *sink = sum;  // so that the loads are not removed
}

constexpr unsigned threads = 256;  // 16 at least: one for each byte of a head or tail

unsigned blocksFor(std::size_t bytes) {
  constexpr std::size_t maxBlocks = 1024;
  return static_cast<unsigned>(std::clamp<std::size_t>(bytes / (16 * threads), 1, maxBlocks));
}

class GpuTimingKernels : public TimingKernels {
 public:
  explicit GpuTimingKernels(int rank) : random_(detail::gpuCallocShared<std::uint64_t>()) {
    const std::uint64_t seed = 0x9e3779b97f4a7c15u * (static_cast<std::uint64_t>(rank) + 1);
    gpuMemcpy(random_.get(), &seed, 1, cudaMemcpyHostToDevice);
    int device = 0;
    int bytes = 0;
    MSCCLPP_CUDATHROW(cudaGetDevice(&device));
    MSCCLPP_CUDATHROW(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device));
    cacheBytes_ = static_cast<std::size_t>(bytes);
  }

  void delay(CUstream_st* stream) override {
    delayKernel<<<1, 1, 0, stream>>>(random_.get());
    MSCCLPP_CUDATHROW(cudaGetLastError());
  }
  void produce(void* to, std::size_t bytes, CUstream_st* stream) override {
    produceKernel<<<blocksFor(bytes), threads, 0, stream>>>(static_cast<unsigned char*>(to), bytes);
    MSCCLPP_CUDATHROW(cudaGetLastError());
  }
  void consume(const void* from, std::size_t bytes, CUstream_st* stream) override {
    consumeKernel<<<blocksFor(bytes), threads, 0, stream>>>(static_cast<const unsigned char*>(from), bytes,
                                                            sink_.get());
    MSCCLPP_CUDATHROW(cudaGetLastError());
  }
  std::size_t cacheBytes() const override { return cacheBytes_; }

 private:
  std::shared_ptr<std::uint64_t> random_;
  std::shared_ptr<unsigned> sink_ = detail::gpuCallocShared<unsigned>();
  std::size_t cacheBytes_ = 0;
};

}  // namespace

std::unique_ptr<TimingKernels> makeTimingKernels(int rank) {
  return std::make_unique<GpuTimingKernels>(rank);
}

}  // namespace mscclpp::perf
