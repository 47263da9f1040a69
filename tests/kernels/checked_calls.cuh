// Calls of every compiled collective whose data is generated and checked by kernels, so that they can be captured in a
// graph: every replay has other data.
#pragma once

#include <type_traits>

#include "every_collective.hpp"
#include "gpu_rank.cuh"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/reduce_op.hpp"
#include "rounds.cuh"

namespace mscclpp::test {

/// Element i of the input of `rank` in call `call`. Floats: integers whose sum is exact in any order, and pairs whose
/// sum is the poison of the sentinel protocol. Bytes: any, reduced by their maximum.
template <class T>
MSCCLPP_INLINE T inputElement(int rank, std::uint64_t call, std::size_t i) {
  const std::uint64_t bits = mix((call << 40) ^ (static_cast<std::uint64_t>(rank) << 32) ^ i);
  if constexpr (std::is_same_v<T, float>) {
    if (mix(call * 0x9e3779b9u + i / 2) % 64 == 0) return rank == 0 ? arch::bitCast<float>(0xf7f7f7f7u) : 0.0f;
    return static_cast<float>(static_cast<std::int64_t>(bits & 0xfffff) - 0x80000);
  } else {
    return static_cast<T>(bits);
  }
}

/// A call as the kernels see it.
struct GeneratedCall {
  CollectiveType collective;
  int index;  ///< in its round
  int rank;
  int ranks;
  int root;
  int origin;               ///< of a SendReceive
  std::size_t count;        ///< as in CollectiveCall
  std::size_t inputCount;   ///< elements of this rank's input
  std::size_t outputCount;  ///< of its output
  const std::uint64_t* round;

  MSCCLPP_INLINE std::uint64_t number() const { return *round * 1000 + static_cast<std::uint64_t>(index); }
};

/// Element i of the output of a call.
template <class T>
MSCCLPP_INLINE T outputElement(const GeneratedCall& call, std::size_t i) {
  const std::uint64_t number = call.number();
  const std::size_t own = static_cast<std::size_t>(call.rank) * call.count;
  const auto reduced = [&](std::size_t at) {
    T total = inputElement<T>(0, number, at);
    for (int rank = 1; rank < call.ranks; ++rank) {
      const T next = inputElement<T>(rank, number, at);
      if constexpr (std::is_same_v<T, float>) {
        total += next;
      } else {
        total = next > total ? next : total;
      }
    }
    return total;
  };
  switch (call.collective) {
    case CollectiveType::AllReduce:
    case CollectiveType::Reduce:
      return reduced(i);
    case CollectiveType::ReduceScatter:
      return reduced(own + i);
    case CollectiveType::AllGather:
    case CollectiveType::Gather:
      return inputElement<T>(static_cast<int>(i / call.count), number, i % call.count);
    case CollectiveType::AllToAll:
      return inputElement<T>(static_cast<int>(i / call.count), number, own + i % call.count);
    case CollectiveType::Broadcast:
      return inputElement<T>(call.root, number, i);
    case CollectiveType::Scatter:
      return inputElement<T>(call.root, number, own + i);
    case CollectiveType::ReduceScatterV:
      break;
    case CollectiveType::SendReceive:
      return inputElement<T>(call.origin, number, i);
  }
  return T{};
}

/// The bytes before and behind an output that a call must leave unchanged.
inline constexpr std::size_t guardBytes = 64;
inline constexpr unsigned char guardByte = 0xa5;

/// Writes the input, and the guard byte over the output and its guards, unless the call is in place. Null: none.
template <class T>
__global__ void fillBuffers(GeneratedCall call, T* input, unsigned char* output, bool isInPlace) {
  const std::uint64_t number = call.number();
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  const std::size_t first = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (input != nullptr) {
    for (std::size_t i = first; i < call.inputCount; i += step) input[i] = inputElement<T>(call.rank, number, i);
  }
  if (output == nullptr || isInPlace) return;
  const std::size_t bytes = call.outputCount * sizeof(T);
  for (std::size_t i = first; i < bytes + 2 * guardBytes; i += step) {
    output[i - guardBytes] = guardByte;
  }
}

template <class T>
__global__ void checkOutput(GeneratedCall call, const T* output, bool isInPlace, unsigned long long* wrong) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  const std::size_t first = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (std::size_t i = first; i < call.outputCount; i += step) {
    if (output[i] != outputElement<T>(call, i)) atomicAdd(wrong, 1ull);
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(output);
  for (std::size_t i = first; !isInPlace && i < guardBytes; i += step) {
    if (bytes[call.outputCount * sizeof(T) + i] != guardByte || *(bytes - 1 - i) != guardByte) atomicAdd(wrong, 1ull);
  }
}

/// Delays for a time that depends on rank, call and round: mostly a few microseconds, rarely 200.
static __global__ void randomDelay(const std::uint64_t* round, int call, int rank) {
  const std::uint64_t bits =
      mix(*round * 7919 + static_cast<std::uint64_t>(call) * 31 + static_cast<std::uint64_t>(rank));
  spinFor(bits % 128 == 0 ? 200'000 : bits / 128 % 6'000);
}

/// Adds a hash of `data`, which is at `offset` in a message, to *hash: the hashes of parts add up to that of the whole.
static __global__ void addHash(const unsigned char* data, std::size_t bytes, std::size_t offset,
                               unsigned long long* hash) {
  unsigned long long sum = 0;
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < bytes; i += gridDim.x * blockDim.x) {
    sum += mix((offset + i) * 256 + data[i]);
  }
  atomicAdd(hash, sum);
}

/// A sum of floats, for CheckedCalls.
inline CheckedCall sumOf(std::size_t count, const std::string& algorithm = {}) {
  CheckedCall checked;
  checked.call = {.count = count, .type = DataType::FLOAT32, .reduction = ReduceOp::SUM, .algorithm = algorithm};
  return checked;
}

/// Calls on one stream that generate their input and check their output, all on the GPU.
class CheckedCalls {
 public:
  /// maxCount: the largest CollectiveCall::count, of elements of 4 bytes.
  CheckedCalls(const GpuRank& rank, Collectives& collectives, std::size_t maxCount)
      : rank_(rank), collectives_(collectives), maxCount_(maxCount) {}

  cudaStream_t stream() { return stream_; }

  /// Enqueues a call, of FLOAT32 or UINT8; its operator is chosen by the type. Every second one is in place, where the
  /// collective allows it. At most 1000 calls per round.
  void enqueue(CheckedCall checked, bool skewed = true) {
    checked.where = calls_ % 2 == 0 ? Output::InPlace : Output::OtherBuffer;
    checked.call.stream = stream_;
    if (checked.call.type == DataType::UINT8) {
      enqueueOf<unsigned char>(checked, ReduceOp::MAX, skewed);
    } else {
      REQUIRE(checked.call.type == DataType::FLOAT32);
      enqueueOf<float>(checked, ReduceOp::SUM, skewed);
    }
  }
  void enqueueNextRound() {
    nextRound<<<1, 1, 0, stream_>>>(round_.get());
    calls_ = 0;
  }

  /// Waits for the stream and returns the number of wrong elements.
  unsigned long long wrongElements() {
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream_));
    collectives_.check();
    unsigned long long wrong = 0;
    gpuMemcpy(&wrong, wrong_.get(), 1, cudaMemcpyDeviceToHost);
    return wrong;
  }

 private:
  template <class T>
  void enqueueOf(CheckedCall& checked, ReduceOp op, bool skewed) {
    checked.call.reduction = op;
    const parts::Role role = roleOf(checked, rank_.rank, rank_.ranks);
    const int index = calls_++;
    REQUIRE(role.call.count * sizeof(T) <= maxCount_ * sizeof(float));
    REQUIRE(index < 1000);
    CollectiveCall call = role.call;
    const GeneratedCall generated{.collective = call.collective,
                                  .index = index,
                                  .rank = rank_.rank,
                                  .ranks = rank_.ranks,
                                  .root = call.root,
                                  .origin = call.origin,
                                  .count = call.count,
                                  .inputCount = role.hasInput ? role.inputCount : 0,
                                  .outputCount = role.hasOutput ? role.outputCount : 0,
                                  .round = round_.get()};
    const std::size_t start = guardBytes + checked.shift * sizeof(T);
    T* const from = reinterpret_cast<T*>(input_.get() + start) + role.inputPlace;
    T* const to = reinterpret_cast<T*>((role.isInPlace ? input_ : output_).get() + start) + role.outputPlace;
    const std::size_t most = std::max(generated.inputCount, generated.outputCount);
    const auto blocks = static_cast<unsigned>(std::min<std::size_t>(most / 512 + 1, 64));
    auto* const poisoned = role.hasOutput ? reinterpret_cast<unsigned char*>(to) : nullptr;
    fillBuffers<T><<<blocks, 256, 0, stream_>>>(generated, role.hasInput ? from : nullptr, poisoned, role.isInPlace);
    if (skewed) randomDelay<<<1, 1, 0, stream_>>>(round_.get(), index, rank_.rank);
    call.input = role.hasInput ? from : nullptr;
    call.output = role.hasOutput ? to : nullptr;
    collectives_.run(call);
    if (role.hasOutput) {
      checkOutput<T><<<blocks, 256, 0, stream_>>>(generated, to, role.isInPlace, wrong_.get());
    }
    MSCCLPP_CUDATHROW(cudaGetLastError());
  }

  std::size_t bytes() const {
    return maxCount_ * sizeof(float) * static_cast<std::size_t>(rank_.ranks) + 4 * guardBytes;
  }

  const GpuRank& rank_;
  Collectives& collectives_;
  std::size_t maxCount_;
  CudaStreamWithFlags stream_{cudaStreamNonBlocking};
  detail::UniqueGpuPtr<unsigned char> input_ = detail::gpuCallocUnique<unsigned char>(bytes());
  detail::UniqueGpuPtr<unsigned char> output_ = detail::gpuCallocUnique<unsigned char>(bytes());
  detail::UniqueGpuPtr<std::uint64_t> round_ = detail::gpuCallocUnique<std::uint64_t>();
  detail::UniqueGpuPtr<unsigned long long> wrong_ = detail::gpuCallocUnique<unsigned long long>();
  int calls_ = 0;
};

}  // namespace mscclpp::test
