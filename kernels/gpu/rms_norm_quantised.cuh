// All-reduces with RMSNorm on GPUs that quantise the rows: the choice of a kernel.
#pragma once

#include "rms_norm.cuh"

namespace mscclpp::kernels::gpu {

template <class T, Pattern pattern>
int RmsNormBackend::runQuantised(const CollectiveState<Collective<T, pattern>>& state, const RmsNormCall& call,
                                 int maxBlocks, KernelStart start) {
  return visitQuantisation(call.quantisation, [&]<Quantisation quantisation>() {
    return call.hidden > shortRow<T>
               ? launchVariant<T, pattern, 0, 0, quantisation>(state, call, maxBlocks, start)
               : launchVariant<T, pattern, 0, fewPacks, quantisation>(state, call, maxBlocks, start);
  });
}

}  // namespace mscclpp::kernels::gpu
