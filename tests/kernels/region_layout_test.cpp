// The layout of the scratch: how much memory an object takes with the shapes of a GPU, and what each region is for.
#include "kernels/region_layout.hpp"

#include <doctest/doctest.h>

#include <string>

#include "kernels/kernel_lookup.hpp"
#include "kernels/selection.hpp"
#include "kernels/tuning.hpp"

using namespace mscclpp;
using namespace mscclpp::kernels;

namespace {

RegionLayout selectedLayout(int ranks, int maxBlocks) {
  const Selection selection(DeviceType::GPU, "", ranks, maxBlocks);
  return layOutRegions(selection.algorithmsInUse(), DeviceType::GPU, ranks, maxBlocks);
}

const RegionLayout::Region& regionOf(const RegionLayout& layout, CollectiveType collective, const char* name) {
  const int index = layout.indices[indexOf(collective, name)];
  REQUIRE(index >= 0);
  return layout.regions[static_cast<std::size_t>(index)];
}

std::size_t windowBytesOf(std::size_t algorithm, std::size_t capacity, int ranks, const PipelineShape& shape,
                          bool asBytes) {
  std::size_t bytes = 0;
  kernels::detail::visitIndex(algorithm, [&]<std::size_t i>() {
    bytes = asBytes ? CollectiveOf<i, 0, Byte>::scratchFor(capacity, ranks, shape).windowBytes()
                    : CollectiveOf<i, 0, double>::scratchFor(capacity / sizeof(double), ranks, shape).windowBytes();
  });
  return bytes;
}

}  // namespace

// docs/collectives.md has these numbers.
TEST_CASE("region layout: the memory of an object on GPUs") {
  struct Bound {
    int ranks;
    int maxBlocks;
    std::size_t mebibytes;
  };
  for (const Bound& bound :
       {Bound{2, 128, 177}, {4, 128, 253}, {8, 128, 495}, {2, 32, 121}, {4, 32, 211}, {8, 32, 397}}) {
    CAPTURE(bound.ranks);
    CAPTURE(bound.maxBlocks);
    const RegionLayout layout = selectedLayout(bound.ranks, bound.maxBlocks);
    CHECK(layout.bytes <= bound.mebibytes * MiB);
    CHECK(layout.bytes > (bound.mebibytes - 1) * MiB);
    std::size_t end = 0;
    for (const auto& region : layout.regions) {
      CHECK(region.offset >= end);
      CHECK(region.offset % 4096 == 0);
      end = region.offset + region.bytes;
    }
    CHECK(end <= layout.bytes);
  }
}

TEST_CASE("region layout: a pair of ranks has slots for one direction, at the receiver") {
  for (const int ranks : {2, 4, 8}) {
    CAPTURE(ranks);
    const RegionLayout layout = selectedLayout(ranks, mostBlocks);
    const auto& region = regionOf(layout, CollectiveType::SendReceive, "pipelined");
    constexpr std::size_t slots = 8;  // by credits, with a lookahead of 2
    const std::size_t tile = region.pipeline.tilePacks * sizeof(Word128);
    const std::size_t ofPair = static_cast<std::size_t>(region.pipeline.blocks) * slots * tile;
    const std::size_t needed = ofPair * static_cast<std::size_t>(ranks - 1);
    CHECK(region.bytes >= needed);
    CHECK(region.bytes <= needed + needed / 100);
    CHECK(needed <= 64 * MiB);
  }
}

TEST_CASE("region layout: a region is as long as the longest message that is selected on it") {
  const RegionLayout selected = selectedLayout(2, mostBlocks);
  CHECK(regionOf(selected, CollectiveType::AllGather, "sentinel").capacity == 4 * MiB);
  CHECK(regionOf(selected, CollectiveType::AllGather, "ll128").capacity == 512 * KiB);
  CHECK(regionOf(selected, CollectiveType::AllReduce, "two_shot_sentinel").capacity == 16 * MiB);
  CHECK(selected.indices[indexOf(CollectiveType::AllGather, "ll16")] == -1);
  const RegionLayout all = layOutRegions(allAlgorithms(), DeviceType::GPU, 2, mostBlocks);
  for (std::size_t i = 0; i < algorithmTable.size(); ++i) {
    if (algorithmTable[i].variants == Variants::CopyEngine) continue;
    REQUIRE(all.indices[i] >= 0);
    CHECK(all.regions[static_cast<std::size_t>(all.indices[i])].capacity >= algorithmTable[i].maxBytes);
  }
  CHECK(all.bytes > selected.bytes);
}

TEST_CASE("region layout: elements of all sizes have the same scratch, whatever the longest message") {
  for (const std::size_t longest : {1000, 1001, 1007, 1009, 1023}) {
    CAPTURE(longest);
    std::vector<AlgorithmInUse> inUse = allAlgorithms();
    for (auto& each : inUse) each.maxBytes = each.maxBytes == noLimit ? noLimit : longest;
    const RegionLayout layout = layOutRegions(inUse, DeviceType::CPU, 3, 1);
    for (const auto& each : inUse) {
      const auto& region = layout.regions[static_cast<std::size_t>(layout.indices[each.algorithm])];
      for (const bool asBytes : {true, false}) {
        CHECK(windowBytesOf(each.algorithm, region.capacity, 3, region.pipeline, asBytes) == region.bytes);
      }
    }
  }
}
