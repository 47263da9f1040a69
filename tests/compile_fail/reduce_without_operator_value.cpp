// An operator with state needs a value: reduce<array>(op).
// EXPECT: StatelessOperator
#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/collective/stages.hpp"

auto operation() {
  using namespace mscclpp;
#ifdef CORRECT
  return stage::reduce<0>(RuntimeOp{ReduceOp::MAX});
#else
  return stage::reduce<0, RuntimeOp>();
#endif
}
