// What a bulk session does to a part of a message: one load of a chunk, a store for each destination, no other access
// to the data.
#include "mscclpp/basic/group.hpp"
#include "mscclpp/basic/source_sink.hpp"
#include "mscclpp/collective/all_gather.hpp"

using namespace mscclpp;

using Gather = AllGather<std::uint8_t, CollectiveConfig{.protocol = Protocol::Bulk, .ranks = 2, .link = Link::Outputs}>;

__global__ void allGather(const __grid_constant__ Gather::Args args, const std::uint8_t* input, std::uint8_t* output) {
  Gather::run(gpu::LinearGrid(), args, ArraySource<std::uint8_t>(input), ArraySink<std::uint8_t>(output));
  // PTX: st\.release\.sys
  // PTX: ld\.acquire\.sys
  // PTX: fence\.proxy\.async;
  // PTX: cp\.async\.bulk\.shared::cluster\.global\.mbarrier::complete_tx::bytes
  // PTX: cp\.async\.bulk\.global\.shared::cta\.bulk_group
  // PTX: cp\.async\.bulk\.wait_group 0;
  // PTX: st\.release\.sys
  // PTX-NOT: membar|ld\.local|st\.local
}
