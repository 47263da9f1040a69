// An all-gather of one's own, compiled where the program runs and executed from Python (customized_allgather.py). One
// source for GPUs and CPU ranks: nvcc compiles all of it, a C++ compiler what is for CPUs.
#include <pybind11/pybind11.h>

#include <algorithm>
#include <bit>
#include <mscclpp/algorithm.hpp>
#include <mscclpp/basic/serial_group.hpp>
#include <mscclpp/core.hpp>
#include <mscclpp/gpu_utils.hpp>
#include <mscclpp/host/memory/host_buffer.hpp>
#include <mscclpp/memory_channel.hpp>
#include <vector>

namespace py = pybind11;

namespace {

using Handle = mscclpp::DeviceHandle<mscclpp::MemoryChannel>;

/// Gathers `bytes` bytes of each rank. channels: to the scratch of each other rank, in the order of the ranks. Scratch
/// has a slot of `slotBytes` bytes for each rank. Called by all threads of the grid; each block serves some of the
/// peers. If a wait fails, the result is incomplete, and the monitor of the communicator reports it.
template <mscclpp::Grid Grid>
MSCCLPP_HOST_DEVICE void allGather(const Grid& grid, const Handle* channels, int rank, int ranks, const char* scratch,
                                   std::size_t slotBytes, const char* input, char* output, std::size_t bytes) {
  const auto block = grid.block();
  const auto forEachPeer = [&](const auto& body) {
    for (int i = grid.blockIndex(); i < ranks - 1; i += grid.blockCount()) body(channels[i], i < rank ? i : i + 1);
  };
  // The peer may write the slot: what it wrote in the previous call has been read.
  forEachPeer([&](const Handle& channel, int) {
    if (block.rank() == 0) channel.signal();
  });
  forEachPeer([&](const Handle& channel, int) {
    if (block.rank() == 0) channel.wait();
    block.sync();
    mscclpp::copy(block, static_cast<char*>(channel.dst_) + static_cast<std::size_t>(rank) * slotBytes, input, bytes);
    block.sync();  // orders the stores of all threads before the signal
    if (block.rank() == 0) channel.signal();
  });
  forEachPeer([&](const Handle& channel, int peer) {
    if (block.rank() == 0) channel.wait();
    block.sync();
    const auto index = static_cast<std::size_t>(peer);
    mscclpp::copy(block, output + index * bytes, scratch + index * slotBytes, bytes);
  });
  char* own = output + static_cast<std::size_t>(rank) * bytes;
  if (grid.blockIndex() == 0 && own != input) mscclpp::copy(block, own, input, bytes);
}

#if defined(__CUDACC__)
__global__ void __launch_bounds__(1024)
    allGatherKernel(const Handle* channels, int rank, int ranks, const char* scratch, std::size_t slotBytes,
                    const char* input, char* output, std::size_t bytes) {
  allGather(mscclpp::gpu::Grid(), channels, rank, ranks, scratch, slotBytes, input, output, bytes);
}
#endif

/// What the calls on a communicator with messages up to `slotBytes` share.
struct Context {
  int rank;
  int ranks;
  std::size_t slotBytes;
  std::shared_ptr<void> scratch;
  std::vector<mscclpp::MemoryChannel> channels;
  std::shared_ptr<Handle> handles;  // for the kernel
  std::shared_ptr<mscclpp::WaitMonitor> monitor;
};

class AllgatherAlgoBuilder : public mscclpp::AlgorithmBuilder {
 public:
  explicit AllgatherAlgoBuilder(bool onCpu) : onCpu_(onCpu) {
#if !defined(__CUDACC__)
    if (!onCpu) throw std::runtime_error("compiled without nvcc, this module is for CPU ranks only");
#endif
  }

  std::shared_ptr<mscclpp::Algorithm> build() override {
    auto self = std::make_shared<AllgatherAlgoBuilder>(onCpu_);
    return std::make_shared<mscclpp::NativeAlgorithm>(
        "allgather", "allgather", mscclpp::NativeAlgorithm::InitFunc(),
        [self](const std::shared_ptr<void> context, const void* input, void* output, std::size_t inputSize, std::size_t,
               mscclpp::DataType, mscclpp::ReduceOp, cudaStream_t stream, int nBlocks, int nThreadsPerBlock,
               const std::unordered_map<std::string, std::uintptr_t>&, mscclpp::DataType) {
          return self->kernelFunc(*std::static_pointer_cast<Context>(context), static_cast<const char*>(input),
                                  static_cast<char*>(output), inputSize, stream, nBlocks, nThreadsPerBlock);
        },
        [self](std::shared_ptr<mscclpp::Communicator> communicator, const void*, void*, std::size_t inputSize,
               std::size_t, mscclpp::DataType) { return self->initContext(*communicator, inputSize); },
        [](const void*, void*, std::size_t inputSize, std::size_t, mscclpp::DataType, bool) {
          return mscclpp::AlgorithmCtxKey{.baseSendSize = slotBytesFor(inputSize)};
        });
  }

 private:
  /// The same for messages of similar size, so that there are few contexts.
  static std::size_t slotBytesFor(std::size_t inputSize) {
    return std::bit_ceil(std::max<std::size_t>(inputSize, 4096));
  }

  std::shared_ptr<void> initContext(mscclpp::Communicator& communicator, std::size_t inputSize) const {
    const auto bootstrap = communicator.bootstrap();
    auto context = std::make_shared<Context>(
        Context{bootstrap->getRank(),
                bootstrap->getNranks(),
                slotBytesFor(inputSize),
                nullptr,
                {},
                nullptr,
                communicator.monitor(onCpu_ ? mscclpp::DeviceType::CPU : mscclpp::DeviceType::GPU)});
    const std::size_t bytes = static_cast<std::size_t>(context->ranks) * context->slotBytes;
    context->scratch = allocateScratch(bytes);
    const mscclpp::Transport transport = onCpu_ ? mscclpp::Transport::SharedMemory : mscclpp::Transport::CudaIpc;
    const auto own = communicator.registerMemory(context->scratch.get(), bytes, transport);
    // All ranks send before they wait, so that nobody waits for a rank that waits for another.
    struct Peer {
      std::shared_future<mscclpp::RegisteredMemory> memory;
      std::shared_future<mscclpp::Connection> connection;
      int rank;
    };
    std::vector<Peer> peers;
    for (int peer = 0; peer < context->ranks; ++peer) {
      if (peer == context->rank) continue;
      communicator.sendMemory(own, peer);
      peers.push_back({communicator.recvMemory(peer), communicator.connect(transport, peer), peer});
    }
    std::vector<std::shared_future<mscclpp::Semaphore>> semaphores;
    for (const Peer& peer : peers) semaphores.push_back(communicator.buildSemaphore(peer.connection.get(), peer.rank));
    std::vector<Handle> handles;
    for (std::size_t i = 0; i < peers.size(); ++i) {
      context->channels.emplace_back(semaphores[i].get(), peers[i].memory.get(), own);
      handles.push_back(context->channels.back().deviceHandle());
    }
    context->handles = copyForKernel(handles);
    return context;
  }

  mscclpp::CommResult kernelFunc(const Context& context, const char* input, char* output, std::size_t bytes,
                                 [[maybe_unused]] cudaStream_t stream, [[maybe_unused]] int blocks,
                                 [[maybe_unused]] int threads) const {
    if (bytes == 0) return mscclpp::CommResult::CommSuccess;
    const char* scratch = static_cast<const char*>(context.scratch.get());
    if (onCpu_) {
      allGather(mscclpp::cpu::SerialGrid(), context.handles.get(), context.rank, context.ranks, scratch,
                context.slotBytes, input, output, bytes);
      context.monitor->check();  // throws what becomes the result of execute()
      return mscclpp::CommResult::CommSuccess;
    }
    context.monitor->check();  // of earlier calls
#if defined(__CUDACC__)
    const int peers = std::max(context.ranks - 1, 1);
    if (blocks <= 0 || blocks > peers) blocks = peers;
    if (threads <= 0) threads = 1024;
    allGatherKernel<<<blocks, threads, 0, stream>>>(context.handles.get(), context.rank, context.ranks, scratch,
                                                    context.slotBytes, input, output, bytes);
    MSCCLPP_CUDATHROW(cudaGetLastError());
#endif
    return mscclpp::CommResult::CommSuccess;
  }

  std::shared_ptr<void> allocateScratch(std::size_t bytes) const {
#if defined(__CUDACC__)
    if (!onCpu_) return mscclpp::GpuBuffer<char>(bytes).memory();
#endif
    return mscclpp::HostBuffer(bytes).memory();
  }

  std::shared_ptr<Handle> copyForKernel(const std::vector<Handle>& handles) const {
#if defined(__CUDACC__)
    if (!onCpu_) {
      const auto copied = mscclpp::detail::gpuCallocShared<Handle>(handles.size());
      mscclpp::gpuMemcpy(copied.get(), handles.data(), handles.size());
      return copied;
    }
#endif
    const auto copied = std::make_shared<std::vector<Handle>>(handles);
    return {copied, copied->data()};
  }

  bool onCpu_;
};

}  // namespace

PYBIND11_MODULE(mscclpp_native, m) {
  m.def(
      "create_allgather_algorithm",
      [](bool onCpu) {
        const auto algorithm = new std::shared_ptr<mscclpp::Algorithm>(AllgatherAlgoBuilder(onCpu).build());
        return py::capsule(algorithm, mscclpp::ALGORITHM_NATIVE_CAPSULE_NAME,
                           [](void* pointer) { delete static_cast<std::shared_ptr<mscclpp::Algorithm>*>(pointer); });
      },
      py::arg("on_cpu") = false);
}
