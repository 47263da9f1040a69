// 09: a kernel that records custom events along with the library's: it computes, all-reduces, and sends the result to
// another rank by a proxy, which records too. The device code, the rank that runs it, and the file; cpu.cpp and gpu.cu
// start it. Open the file at ui.perfetto.dev or chrome://tracing.
#pragma once

#include <fstream>
#include <sstream>
#include <vector>

#include "example.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/channel/port.hpp"
#include "mscclpp/collective/all_reduce.hpp"
#include "mscclpp/host/communicator/collective_state.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
#include "mscclpp/host/proxy/proxy_service.hpp"
#include "mscclpp/host/trace/trace.hpp"
#include "mscclpp/sync/grid_barrier.hpp"

namespace example {

using namespace mscclpp;

/// Ids of the custom events; their names are registered with the trace below.
inline constexpr TraceId compute = userTraceId(0);
inline constexpr TraceId sendToPeer = userTraceId(1);

using Reduce = AllReduce<float, Sum, AllReduceConfig{.protocol = Protocol::Simple, .pattern = Pattern::TwoShot}>;

inline constexpr std::size_t count = 100'000;  // floats
inline constexpr int steps = 3;

/// The buffers and handles of a launch. Memory of this rank's device, zero at first.
struct Step {
  Reduce::Args reduce;
  PortChannelHandle channel;  ///< from `output` to the peer's memory
  GridBarrier* barrier;
  float* partial;
  float* output;
  int number;
  TraceBuffer trace;
};

MSCCLPP_HOST_DEVICE inline float contribution(int rank, int step, std::size_t i) {
  return static_cast<float>((static_cast<int>(i) + step * 7 + rank) % 64);
}

/// Called by all threads of the grid, whose blocks are resident at once.
template <Grid GridType>
MSCCLPP_INLINE void runStep(const GridType& grid, const Step& step) {
  BlockTrace trace(step.trace, grid);
  auto wait = tracedWait(step.reduce.wait, trace);
  const auto block = grid.block();
  {
    const TraceSpan span(trace, compute, static_cast<std::uint64_t>(step.number));
    const auto stride = static_cast<std::size_t>(grid.blockCount() * block.size());
    for (auto i = static_cast<std::size_t>(grid.blockIndex() * block.size() + block.rank()); i < count; i += stride) {
      step.partial[i] = contribution(step.reduce.team.rank(), step.number, i);
    }
  }
  step.barrier->sync(grid, wait);
  // The library's stages land on the same tracks.
  Reduce::run(TracedGrid(grid, trace), step.reduce, ArraySource<float>(step.partial), ArraySink<float>(step.output));
  step.barrier->sync(grid, wait);
  if (grid.blockIndex() == 0 && block.rank() == 0) {
    const TraceSpan span(trace, sendToPeer, count * sizeof(float));
    auto channel = step.channel;
    channel.putWithSignal(0, count * sizeof(float));
    channel.wait();   // for the peer's
    channel.flush();  // until the output may be written again
  }
}

/// Block b of each rank works with block b of the others.
inline PipelineShape shapeFor(int blocks) {
  return {.tilePacks = static_cast<std::size_t>(1024 / blocks), .blocks = blocks, .slots = 4};
}

/// One rank, from set-up to the file. Backend: what differs between CPU and GPU, in cpu.cpp and gpu.cu.
template <class Backend>
void runRank(ProcessGroup& group, const Backend& backend, const std::string& path) {
  const int rank = group.rank();
  const int ranks = group.size();
  require(ranks % 2 == 0, "ranks go in pairs here");
  const int peer = rank ^ 1;
  Communicator communicator(group.connect());
  Bootstrap& bootstrap = *communicator.bootstrap();

  // The trace: where the blocks record, tracks for threads of the host, and names for our own events.
  Trace trace(
      {.rank = rank, .device = backend.type, .blocks = backend.blocks, .launchClockSync = backend.launchClockSync});
  trace.name(compute, "compute", "step");
  trace.name(sendToPeer, "send", "bytes");

  // It shares the monitor of the communicator's semaphores: one check for all waits of a step.
  const auto monitor = communicator.monitor(backend.type);
  const CollectiveState<Reduce> state(communicator, backend.type, count, shapeFor(backend.blocks), monitor);
  const SymmetricMemory recvBuffers(communicator, count * sizeof(float), backend.type);
  const auto barrier = backend.template allocate<GridBarrier>(1);
  const auto partial = backend.template allocate<float>(count);
  const auto output = backend.template allocate<float>(count);

  ProxyService service(ProxyServiceOptions{.thread = {.device = backend.type, .trace = trace.track("proxy")}});
  const Connection connection =
      communicator.connect(EndpointConfig(backend.transport, Device(backend.type)), peer).get();
  const SemaphoreId semaphore = service.buildAndAddSemaphore(communicator, connection);
  const MemoryId peerRecvBuffer = service.addMemory(recvBuffers.memory(peer));
  const MemoryId sendBuffer =
      service.addMemory(communicator.registerMemory(output.get(), count * sizeof(float), backend.transport));
  const PortChannel channel = service.portChannel(semaphore, peerRecvBuffer, sendBuffer);
  service.startProxy();

  for (int number = 0; number < steps; ++number) {
    const Step step{.reduce = state.args(count),
                    .channel = channel.deviceHandle(),
                    .barrier = barrier.get(),
                    .partial = partial.get(),
                    .output = output.get(),
                    .number = number,
                    .trace = trace.buffer()};
    backend.run(step);
    state.check();
  }
  service.stopProxy();

  // What the peer handed over is what every rank has.
  const std::vector<float> result = backend.read(static_cast<const float*>(recvBuffers.local()), count);
  for (std::size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int r = 0; r < ranks; ++r) sum += contribution(r, steps - 1, i);
    require(result[i] == sum, "element " + std::to_string(i) + " is wrong");
  }

  writeTrace(path, trace, bootstrap);  // of all ranks
  require(trace.lost() == 0, "there was no room for some events");
  if (rank == 0) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    for (const char* part : {"compute", "send", "all_reduce", "push", "proxy", "put + signal"}) {
      require(text.str().find(part) != std::string::npos, std::string("the trace is without ") + part);
    }
    std::printf("%d steps on %d ranks: right, and recorded in %s\n", steps, ranks, path.c_str());
  }
  bootstrap.barrier();
}

}  // namespace example
