// A custom proxy service, which does an all-gather for one trigger: copies by connections, signals by the host.
#include <atomic>
#include <mscclpp/core.hpp>
#include <mscclpp/fifo.hpp>
#include <mscclpp/gpu_utils.hpp>
#include <mscclpp/numa.hpp>
#include <mscclpp/port_channel.hpp>
#include <mscclpp/proxy.hpp>
#include <mscclpp/semaphore.hpp>
#include <stdexcept>

#include "launch.hpp"

namespace {

class AllGatherProxyService : public mscclpp::BaseProxyService {
 public:
  AllGatherProxyService(int rank, size_t bytesPerRank, mscclpp::RegisteredMemory local)
      : rank_(rank),
        bytesPerRank_(bytesPerRank),
        local_(local),
        proxy_([&](mscclpp::ProxyTrigger trigger) { return handleTrigger(trigger); },
               [&]() {
                 const int node = mscclpp::getDeviceNumaNode(rank_);
                 try {
                   if (node >= 0) mscclpp::numaBind(node);
                 } catch (const mscclpp::BaseError&) {  // a container may allow none of the node's CPUs
                 }
                 ++starts;
               }) {}

  void add(mscclpp::RegisteredMemory remote, std::shared_ptr<mscclpp::Host2DeviceSemaphore> semaphore) {
    remotes_.push_back(remote);
    semaphores_.push_back(semaphore);
  }
  void startProxy(bool blocking = false) override { proxy_.start(blocking); }
  void stopProxy() override { proxy_.stop(); }
  mscclpp::FifoDeviceHandle fifo() { return proxy_.fifo()->deviceHandle(); }

  std::atomic<int> starts = 0;
  std::atomic<int> requests = 0;

 private:
  mscclpp::ProxyHandlerResult handleTrigger(mscclpp::ProxyTrigger trigger) {
    if (trigger.fst != 123 || trigger.fields.reserved != 0) return mscclpp::ProxyHandlerResult::Stop;
    const size_t offset = rank_ * bytesPerRank_;
    for (size_t i = 0; i < remotes_.size(); ++i) {
      semaphores_[i]->connection().write(remotes_[i], offset, local_, offset, bytesPerRank_);
      semaphores_[i]->signal();
    }
    for (auto& semaphore : semaphores_) semaphore->connection().flush();
    ++requests;
    return mscclpp::ProxyHandlerResult::Continue;
  }

  int rank_;
  size_t bytesPerRank_;
  mscclpp::RegisteredMemory local_;
  std::vector<mscclpp::RegisteredMemory> remotes_;
  std::vector<std::shared_ptr<mscclpp::Host2DeviceSemaphore>> semaphores_;
  mscclpp::Proxy proxy_;
};

__device__ mscclpp::FifoDeviceHandle fifoOfGpu;
__constant__ mscclpp::DeviceHandle<mscclpp::Host2DeviceSemaphore> semaphoresOfGpu[8];

__global__ void gather(int peers) {
  if (threadIdx.x == 0) {
    mscclpp::ProxyTrigger trigger;
    trigger.fst = 123;
    trigger.snd = uint64_t(1) << 63;  // the phase bit, which the FIFO overwrites
    const uint64_t position = fifoOfGpu.push(trigger);
    fifoOfGpu.sync(position);
  }
  if (static_cast<int>(threadIdx.x) < peers) semaphoresOfGpu[threadIdx.x].wait();
}

void run(int rank, int nRanks, const std::string& address) {
  auto bootstrap = std::make_shared<mscclpp::TcpBootstrap>(rank, nRanks);
  bootstrap->initialize(address);
  mscclpp::Communicator comm(bootstrap);

  constexpr size_t nelems = 3001;
  constexpr size_t bytesPerRank = nelems * sizeof(int);
  auto data = mscclpp::detail::gpuCallocShared<int>(nelems * nRanks);  // cudaMalloc memory can be registered too
  auto local = comm.registerMemory(data.get(), bytesPerRank * nRanks, mscclpp::Transport::CudaIpc);
  AllGatherProxyService service(rank, bytesPerRank, local);
  std::vector<mscclpp::DeviceHandle<mscclpp::Host2DeviceSemaphore>> handles;
  std::vector<mscclpp::NonblockingFuture<mscclpp::RegisteredMemory>> remotes;
  std::vector<std::shared_future<mscclpp::Connection>> connections;
  for (int peer = 0; peer < nRanks; ++peer) {
    if (peer == rank) continue;
    connections.push_back(comm.connect(mscclpp::EndpointConfig(mscclpp::Transport::CudaIpc), peer));
    comm.sendMemory(local, peer);
    remotes.push_back(comm.recvMemory(peer));
  }
  std::vector<std::shared_ptr<mscclpp::Host2DeviceSemaphore>> semaphores;
  for (size_t i = 0; i < connections.size(); ++i) {
    semaphores.push_back(std::make_shared<mscclpp::Host2DeviceSemaphore>(comm, connections[i].get()));
    handles.push_back(semaphores.back()->deviceHandle());
    service.add(remotes[i].get(), semaphores.back());
  }
  const auto fifo = service.fifo();
  MSCCLPP_CUDATHROW(cudaMemcpyToSymbol(fifoOfGpu, &fifo, sizeof(fifo)));
  MSCCLPP_CUDATHROW(cudaMemcpyToSymbol(semaphoresOfGpu, handles.data(), handles.size() * sizeof(handles[0])));

  std::vector<int> numbers(nelems * nRanks);
  for (int turn = 0; turn < 3; ++turn) {  // a service can be restarted after a stop
    service.startProxy(true);
    for (int call = 0; call < 10; ++call) {
      for (size_t i = 0; i < nelems; ++i) numbers[rank * nelems + i] = 100 * turn + 10 * call + rank;
      mscclpp::gpuMemcpy(data.get() + rank * nelems, numbers.data() + rank * nelems, nelems, cudaMemcpyHostToDevice);
      bootstrap->barrier();
      gather<<<1, 32>>>(nRanks - 1);
      MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
      mscclpp::gpuMemcpy(numbers.data(), data.get(), numbers.size(), cudaMemcpyDeviceToHost);
      for (int from = 0; from < nRanks; ++from) {
        for (size_t i = 0; i < nelems; ++i) {
          launch::require(numbers[from * nelems + i] == 100 * turn + 10 * call + from, "a wrong number was gathered");
        }
      }
      bootstrap->barrier();
    }
    service.stopProxy();
  }
  launch::require(service.starts == 3 && service.requests == 30, "the proxy ran when it should");
  bootstrap->barrier();
}

}  // namespace

int main() {
  return launch::ranksOnGpus(2, 8, run);
}
