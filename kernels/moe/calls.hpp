// The calls of a moe::Buffer as run-time values, and the choice of the kernel for one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/basic/element.hpp"
#include "mscclpp/kernels/moe_buffer.hpp"
#include "mscclpp/moe/combine.hpp"
#include "mscclpp/moe/dispatch.hpp"

namespace mscclpp::kernels {

using LowLatencyRows = moe::PacketTransport<Sentinel>;

/// What the calls of a form have in common.
struct MoeCall {
  Team<> team;
  Window<> window;
  EpochWords epochs;
  BoundedWait wait;
  moe::Dimensions dimensions;
  moe::Handle handle;
  std::uint32_t tokens;
  std::uint32_t rowPacks;
  moe::Phase phase;
  bool isLowLatency;
  int blocks;
  KernelStart start;
  CUstream_st* stream;
};
struct MoeDispatchCall : MoeCall {
  moe::RowFormat format;
  bool copiesRows;  ///< by bulk copies, in the bandwidth form
  int sendingBlocks;
  moe::Tokens input;
  moe::ExpertRowArray output;
  bool sendsEarly;  ///< DispatchArgs::sendsEarly
  bool streams;     ///< DispatchArgs::streams, and RowArray::streams; output.streams has its own
  moe::ExpertPlacement placement;
  moe::DispatchWorkspace workspace;
};
struct MoeCombineCall : MoeCall {
  EpochWords dispatches;
  int sendingBlocks;
  const void* results;
  void* output;
};
struct MoeLayoutCall {
  moe::Routing<std::int64_t> routing;
  moe::Dimensions dimensions;
  moe::RoutingLayout layout;
  GridBarrier* barrier;
  std::uint32_t* blockMemory;  ///< [blocks][moe::routingLayoutWords()]; not used where they are in shared memory
  BoundedWait wait;
  int blocks;
  KernelStart start;
  CUstream_st* stream;
};

/// layOutRouting() as a collective of one rank, for the generic kernel.
struct MoeLayout {
  struct Nothing {};
  using Args = MoeLayoutCall;
  static constexpr int maxBlockThreads = 512;

  static MSCCLPP_HOST_DEVICE std::size_t sharedBytes(const Args& args, LaunchShape /*shape*/) {
    return moe::sharedWordBytes(moe::routingLayoutWords(args.dimensions));
  }
  template <class GridType>
  static MSCCLPP_INLINE void run(const GridType& grid, const Args& args, const Nothing&, const Nothing&) {
    auto wait = args.wait;
    std::uint32_t* const words = moe::wordsOfBlock(grid, moe::routingLayoutWords(args.dimensions), 0, args.blockMemory);
    moe::layOutRouting(
        grid, args.routing, args.dimensions, args.layout, words,
        [&](std::uint32_t blocks) { return !grid.block().syncAny(!args.barrier->sync(grid, blocks, wait)); },
        [](std::uint32_t /*blocks*/) { return true; });  // the end of the kernel
  }
};

// Of each backend: run the call (CPU) or enqueue it (GPU). Return 0 or a cudaError_t.
namespace cpu {
int run(const MoeDispatchCall& call);
int run(const MoeCombineCall& call);
int run(const MoeLayoutCall& call);
}  // namespace cpu
namespace gpu {
int run(const MoeDispatchCall& call);
int run(const MoeCombineCall& call);
int run(const MoeLayoutCall& call);
/// Whether the current device has bulk copies.
bool hasBulkCopies();
/// Of the current device.
std::size_t l2CacheBytes();
}  // namespace gpu

template <class Args>
void fill(Args& args, const MoeCall& call) {
  args.team = call.team;
  args.window = call.window;
  args.epochs = call.epochs;
  args.wait = call.wait;
  args.count = call.tokens;
  args.dimensions = call.dimensions;
  args.handle = call.handle;
  args.phase = call.phase;
}

template <class Transport, class Launch>
int runDispatch(const MoeDispatchCall& call, const Launch& launch) {
  using Collective = moe::Dispatch<Transport, 0, std::int64_t>;
  typename Collective::Args args{};
  fill(args, call);
  args.scratch = Collective::scratchFor(call.dimensions, call.rowPacks, call.format != moe::RowFormat::Bf16);
  args.routing = {call.input.experts, call.input.weights, call.tokens};
  args.workspace = call.workspace;
  args.placement = call.placement;
  args.sendsEarly = call.sendsEarly;
  args.streams = call.streams;
  args.sendingBlocks = call.sendingBlocks;
  const moe::RowArray rows{static_cast<const std::byte*>(call.input.rows), call.rowPacks, call.streams};
  switch (call.format) {
    case moe::RowFormat::Bf16:
      return launch.template operator()<Collective>(args, rows, call.output);
    case moe::RowFormat::Fp8:
      return launch.template operator()<Collective>(args, moe::ScaledRowArray{rows, call.input.scales}, call.output);
    case moe::RowFormat::QuantiseBf16:
      break;
  }
  if constexpr (Transport::usesBulkCopies) {
    return runDispatch<moe::StoreTransport>(call, launch);  // there is no array to copy
  } else {
    const moe::QuantisedRows<bf16> values{static_cast<const bf16*>(call.input.rows), call.rowPacks};
    return launch.template operator()<Collective>(args, values, call.output);
  }
}

template <class Transport, class Launch>
int runCombine(const MoeCombineCall& call, const Launch& launch) {
  using Collective = moe::Combine<bf16, Transport>;
  typename Collective::Args args{};
  fill(args, call);
  args.scratch = Collective::scratchFor(call.dimensions, call.rowPacks);
  args.dispatches = call.dispatches;
  args.sendingBlocks = call.sendingBlocks;
  return launch.template operator()<Collective>(
      args, moe::ExpertResults<bf16>{static_cast<const bf16*>(call.results), call.rowPacks},
      moe::TokenRows<bf16>{static_cast<bf16*>(call.output), call.rowPacks});
}

/// Calls launch.operator()<Collective>(args, source, sink) with the collective for a call.
template <class Launch>
int runMoe(const MoeDispatchCall& call, const Launch& launch) {
  if (call.isLowLatency) return runDispatch<LowLatencyRows>(call, launch);
  if constexpr (Launch::hasSharedMemory) {
    if (call.copiesRows) return runDispatch<moe::BulkTransport>(call, launch);
  }
  return runDispatch<moe::StoreTransport>(call, launch);
}
template <class Launch>
int runMoe(const MoeCombineCall& call, const Launch& launch) {
  return call.isLowLatency ? runCombine<LowLatencyRows>(call, launch) : runCombine<moe::StoreTransport>(call, launch);
}
template <class Launch>
int runMoe(const MoeLayoutCall& call, const Launch& launch) {
  return launch.template operator()<MoeLayout>(call, MoeLayout::Nothing{}, MoeLayout::Nothing{});
}

}  // namespace mscclpp::kernels
