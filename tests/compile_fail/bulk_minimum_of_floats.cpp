// The hardware has no minimum of floats on the way to memory.
// EXPECT: no bulk reduction of this kind
#include "mscclpp/basic/bulk.hpp"

void reduce(float* global, const float* shared) {
#ifdef CORRECT
  mscclpp::bulkReduceStore<float, mscclpp::BulkRedOp::Add>(global, shared, 64);
#else
  mscclpp::bulkReduceStore<float, mscclpp::BulkRedOp::Min>(global, shared, 64);
#endif
}
