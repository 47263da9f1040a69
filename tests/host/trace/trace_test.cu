// A trace of a GPU: its events lie between the host's timestamps before and after, whatever clock the GPU has.
#include <doctest/doctest.h>

#include "mscclpp/arch/clock.hpp"
#include "mscclpp/basic/group.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/clock_sync.cuh"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/cuda/gpu.hpp"
#include "mscclpp/host/trace/trace.hpp"
#include "trace_file.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

constexpr TraceId whole = userTraceId(0), part = userTraceId(1);

/// Two spans of 20 us by the globaltimer, one after the other, inside one.
__global__ void spans(TraceBuffer buffer) {
  BlockTrace trace(buffer, gpu::Grid());
  const TraceSpan outer(trace, whole);
  for (std::uint64_t i = 0; i < 2; ++i) {
    const TraceSpan inner(trace, part, i);
    const auto start = arch::nanoseconds();
    while (arch::nanoseconds() - start < 20'000) {
    }
  }
}

double microsecondsNow() {
  return static_cast<double>(arch::nanoseconds()) / 1000;
}

}  // namespace

TEST_CASE("trace: the blocks of a GPU on the host's clock") {
  const TemporaryFile file("gpu.json");
  constexpr int blocks = 4;
  constexpr int launches = 5;
  Trace trace({.device = DeviceType::GPU, .blocks = blocks, .launchClockSync = launchClockSyncOnGpu});
  trace.name(whole, "whole");
  trace.name(part, "part");
  std::vector<double> before, after;
  for (int i = 0; i < launches; ++i) {
    before.push_back(microsecondsNow());
    spans<<<blocks, 64>>>(trace.buffer());
    MSCCLPP_CUDATHROW(cudaGetLastError());
    MSCCLPP_CUDATHROW(cudaDeviceSynchronize());
    after.push_back(microsecondsNow());
    if (i == 2) trace.collect();
  }
  writeTrace(file.path(), {&trace});
  CHECK(trace.lost() == 0);
  const double error = static_cast<double>(trace.clockError()) / 1000 + 1;  // and a tick
  MESSAGE("clocks compared within " << trace.clockError() << " ns");
  CHECK(trace.clockError() > 0);
  CHECK(error < 100);
  const auto tracks = tracksOf(file.read());
  REQUIRE(tracks.size() == 2 * blocks);
  for (const auto& [key, track] : tracks) {
    CAPTURE(track.name);
    const auto wholes = spansOf(track, "whole");
    const auto parts = spansOf(track, "part");
    REQUIRE(wholes.size() == launches);
    REQUIRE(parts.size() == 2 * launches);
    for (std::size_t i = 0; i < launches; ++i) {
      CHECK(wholes[i].begin > before[i] - error);
      CHECK(wholes[i].end < after[i] + error);
    }
    for (const ReadSpan& each : parts) {
      // Measured by a different clock than the one that ended it: a tick on either side, and some time for the loop.
      CHECK(each.end - each.begin > 18);
      CHECK(each.end - each.begin < 40);
    }
  }
}

TEST_CASE("trace: if no kernel responds, the synchronisation of the GPU's clock is a clear error") {
  CHECK_THROWS_AS(Trace({.device = DeviceType::GPU}), Error);
}
