// An all-reduce over packets in two phases, as in MSCCL++'s examples: scatter, reduce and broadcast, with handles in
// constant memory.
#include <mscclpp/concurrency_device.hpp>
#include <mscclpp/core.hpp>
#include <mscclpp/gpu_utils.hpp>
#include <mscclpp/memory_channel.hpp>
#include <mscclpp/memory_channel_device.hpp>
#include <mscclpp/packet_device.hpp>
#include <mscclpp/semaphore.hpp>
#include <stdexcept>

#include "launch.hpp"

namespace {

__constant__ mscclpp::DeviceHandle<mscclpp::MemoryChannel> constMemChans[8];
__device__ mscclpp::DeviceSyncer deviceSyncer;

constexpr int maxRanks = 8;
constexpr int blocks = 14;

template <typename Packet>
struct Pieces;
template <>
struct Pieces<mscclpp::LL16Packet> {
  static __device__ mscclpp::PacketPayload<mscclpp::LL16Packet> add(uint2 a, uint2 b) {
    return make_uint2(a.x + b.x, a.y + b.y);
  }
};
template <>
struct Pieces<mscclpp::LL8Packet> {
  static __device__ mscclpp::PacketPayload<mscclpp::LL8Packet> add(uint32_t a, uint32_t b) { return a + b; }
};

// scratch: for each parity of the flag `nRanks` parts for the scatter and `nRanks` for the result, each of packets for
// one rank's slice.
template <typename Packet>
__global__ void allReduce(uint32_t* data, char* scratch, char* result, int rank, int nRanks, size_t bytesPerRank,
                          uint32_t flag) {
  using Payload = mscclpp::PacketPayload<Packet>;
  const uint32_t tid = threadIdx.x + blockIdx.x * blockDim.x;
  const uint32_t nThreads = blockDim.x * gridDim.x;
  const size_t packetBytes = bytesPerRank * 2;
  const size_t parity = flag % 2 * (2 * maxRanks * packetBytes);
  const size_t packets = bytesPerRank / sizeof(Payload);

  for (int i = 0; i < nRanks - 1; ++i) {
    const int peer = i < rank ? i : i + 1;
    constMemChans[i].putPackets<Packet>(parity + rank * packetBytes, peer * bytesPerRank, bytesPerRank, tid, nThreads,
                                        flag);
  }
  auto* mine = reinterpret_cast<Payload*>(reinterpret_cast<char*>(data) + rank * bytesPerRank);
  auto* reduced = reinterpret_cast<Payload*>(result + rank * bytesPerRank);
  for (size_t p = tid; p < packets; p += nThreads) {
    Payload sum = mine[p];
    for (int i = 0; i < nRanks - 1; ++i) {
      const int peer = i < rank ? i : i + 1;
      const auto* from = reinterpret_cast<Packet*>(scratch + parity + peer * packetBytes);
      sum = Pieces<Packet>::add(sum, from[p].read(flag, -1));
    }
    reduced[p] = sum;
    for (int i = 0; i < nRanks - 1; ++i) {
      auto* to = reinterpret_cast<Packet*>(reinterpret_cast<char*>(constMemChans[i].dst_) + parity +
                                           (maxRanks + rank) * packetBytes);
      to[p].write(sum, flag);
    }
  }
  deviceSyncer.sync(gridDim.x);
  for (int i = 0; i < nRanks - 1; ++i) {
    const int peer = i < rank ? i : i + 1;
    if (i % 2 == 0) {
      mscclpp::copyFromPackets<Packet>(result + peer * bytesPerRank, scratch + parity + (maxRanks + peer) * packetBytes,
                                       bytesPerRank, tid, nThreads, flag);
    } else {
      for (size_t p = tid; p < packets; p += nThreads) {
        const size_t index = (parity + (maxRanks + peer) * packetBytes) / sizeof(Packet) + p;
        reinterpret_cast<Payload*>(result + peer * bytesPerRank)[p] =
            constMemChans[i].unpackPacket<Packet>(index, flag);
      }
    }
  }
}

void run(int rank, int nRanks, const std::string& address) {
  auto bootstrap = std::make_shared<mscclpp::TcpBootstrap>(rank, nRanks);
  bootstrap->initialize(address);
  mscclpp::Communicator comm(bootstrap);
  const auto transport = mscclpp::Transport::CudaIpc;

  constexpr size_t wordsPerRank = 4098;
  constexpr size_t bytesPerRank = wordsPerRank * sizeof(uint32_t);
  const size_t words = wordsPerRank * nRanks;
  mscclpp::GpuBuffer<uint32_t> data(words);
  mscclpp::GpuBuffer<char> result(words * sizeof(uint32_t));
  mscclpp::GpuBuffer<char> scratch(2 * 2 * maxRanks * 2 * bytesPerRank);
  auto dataMemory = comm.registerMemory(data.data(), data.bytes(), transport);
  auto scratchMemory = comm.registerMemory(scratch.data(), scratch.bytes(), transport);

  std::vector<mscclpp::MemoryChannel> channels;
  std::vector<std::shared_future<mscclpp::Connection>> connections;
  std::vector<std::shared_future<mscclpp::RegisteredMemory>> memories;
  for (int peer = 0; peer < nRanks; ++peer) {
    if (peer == rank) continue;
    connections.push_back(comm.connect(transport, peer));
    memories.push_back(comm.recvMemory(peer));
    comm.sendMemory(scratchMemory, peer);
  }
  for (size_t i = 0; i < connections.size(); ++i) {
    auto semaphore = std::make_shared<mscclpp::MemoryDevice2DeviceSemaphore>(comm, connections[i].get());
    channels.emplace_back(semaphore, memories[i].get(), dataMemory, scratch.data());
  }
  std::vector<mscclpp::DeviceHandle<mscclpp::MemoryChannel>> handles;
  for (const auto& channel : channels) handles.push_back(mscclpp::deviceHandle(channel));
  MSCCLPP_CUDATHROW(cudaMemcpyToSymbol(constMemChans, handles.data(), handles.size() * sizeof(handles[0])));

  mscclpp::CudaStreamWithFlags stream(cudaStreamNonBlocking);
  std::vector<uint32_t> host(words);
  uint32_t flag = 0;
  for (int call = 0; call < 20; ++call) {
    for (size_t i = 0; i < words; ++i) host[i] = static_cast<uint32_t>(i * 31 + rank * 7 + call);
    mscclpp::gpuMemcpyAsync(data.data(), host.data(), words, stream, cudaMemcpyHostToDevice);
    ++flag;
    // Both formats share the scratch, so a change of format needs cleared packets on both sides.
    if (call == 10) {
      MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
      bootstrap->barrier();
      mscclpp::gpuMemset(scratch.data(), 0, scratch.bytes());
      bootstrap->barrier();
    }
    const auto kernel = call < 10 ? allReduce<mscclpp::LL16Packet> : allReduce<mscclpp::LL8Packet>;
    kernel<<<blocks, 256, 0, stream>>>(data.data(), scratch.data(), result.data(), rank, nRanks, bytesPerRank, flag);
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
    mscclpp::gpuMemcpy(reinterpret_cast<char*>(host.data()), result.data(), words * sizeof(uint32_t),
                       cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < words; ++i) {
      const uint32_t ranks = static_cast<uint32_t>(nRanks);
      const auto expected = static_cast<uint32_t>(ranks * (i * 31 + call) + 7 * ranks * (ranks - 1) / 2);
      launch::require(host[i] == expected, "a wrong sum");
    }
  }
  bootstrap->barrier();
}

}  // namespace

int main() {
  return launch::ranksOnGpus(2, maxRanks, run);
}
