// The copy engine has no minimum of floats.
// EXPECT: no such bulk reduction
#include "mscclpp/basic/bulk.hpp"

void reduce(float* global, const float* shared) {
#ifdef CORRECT
  mscclpp::bulkReduceStore<float, mscclpp::BulkRedOp::Add>(global, shared, 64);
#else
  mscclpp::bulkReduceStore<float, mscclpp::BulkRedOp::Min>(global, shared, 64);
#endif
}
