// Dispatches and combines on GPUs.
#include "kernels/gpu/attribute.hpp"
#include "kernels/moe/calls.hpp"
#include "mscclpp/kernel.cuh"

namespace mscclpp::kernels::gpu {

namespace {

struct Launch {
  static constexpr bool hasSharedMemory = true;
  int blocks;
  CUstream_st* stream;
  KernelStart start;

  template <class Collective, class Source, class Sink>
  int operator()(const typename Collective::Args& args, const Source& source, const Sink& sink) const {
    return static_cast<int>(
        launch<Collective>({blocks, Collective::maxBlockThreads}, stream, args, source, sink, start));
  }
};

}  // namespace

int run(const MoeDispatchCall& call) {
  return runMoe(call, Launch{call.blocks, call.stream, call.start});
}
int run(const MoeCombineCall& call) {
  return runMoe(call, Launch{call.blocks, call.stream, call.start});
}
int run(const MoeLayoutCall& call) {
  return runMoe(call, Launch{call.blocks, call.stream, call.start});
}

bool hasBulkCopies() {
  return attribute(cudaDevAttrComputeCapabilityMajor) >= 9;
}
std::size_t l2CacheBytes() {
  return static_cast<std::size_t>(attribute(cudaDevAttrL2CacheSize));
}

}  // namespace mscclpp::kernels::gpu
