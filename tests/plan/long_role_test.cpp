// A plan of thousands of operations as code: the order in which they are executed.
#include <doctest/doctest.h>

#include <vector>

#include "mscclpp/plan/static_role.hpp"

namespace mscclpp::plan {
namespace {

/// The order in which code executes its operations, which are barriers and loops of two iterations.
struct RecordedExecution {
  std::vector<int> order;

  std::uint64_t iterations(std::uint64_t) const { return 2; }
  void setIteration(const Iteration& iteration) {
    if (iteration.unit == 0) order.push_back(-1);  // behind the loop
  }
  void barrier(const Operation&, int index) { order.push_back(index); }
};
template <int... loops>  // where each begins, and where it ends, in turn
struct LongRole {
  static constexpr int operationCount = 2000;
  struct Operations {
    Operation entries[operationCount];
    constexpr const Operation& operator[](int i) const { return entries[i]; }
  };
  static constexpr Operations make() {
    Operations made;
    for (Operation& operation : made.entries) operation.kind = OperationKind::Barrier;
    OperationKind kind = OperationKind::LoopEnd;
    for (const int i : {loops...}) {
      made.entries[i].kind = kind = kind == OperationKind::LoopEnd ? OperationKind::LoopBegin : OperationKind::LoopEnd;
      made.entries[i].unitBytes = 64;
    }
    return made;
  }
  static constexpr Operations operations = make();
  static constexpr Operation operationSteps[operationCount] = {};
};

template <class Role>
void checkOrder() {
  std::vector<int> expected;
  for (int i = 0, begin = -1; i < Role::operationCount; ++i) {
    const OperationKind kind = Role::operations[i].kind;
    if (kind == OperationKind::LoopBegin) begin = i;
    if (kind == OperationKind::Barrier) expected.push_back(i);
    if (kind != OperationKind::LoopEnd) continue;
    for (int again = begin + 1; again < i; ++again) expected.push_back(again);
    expected.push_back(-1);
  }
  RecordedExecution execution;
  detail::runOperations<Role, 0, Role::operationCount>(execution, 0);
  CHECK(execution.order == expected);
}

TEST_CASE("code of 2,000 operations, which is deeper than compilers nest templates if it is not halved") {
  checkOrder<LongRole<0, 9, 10, 11, 990, 1001, 1003, 1980>>();
}

}  // namespace
}  // namespace mscclpp::plan
