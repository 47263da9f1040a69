// Test data of CPU ranks, and where outputs come from.
#include "data_tasks.hpp"
#include "mscclpp/basic/serial_group.hpp"

namespace mscclpp::perf {

namespace {

struct CallingThread {
  template <class Task>
  static void run(const Task& task, std::size_t /*indices*/, CUstream_st* /*stream*/) {
    task(cpu::SerialGrid());
  }
};

}  // namespace

OutputRule outputRule(const CollectiveShape& shape, const InputRule& inputs, int rank, int root,
                      bool roundsEachAddition) {
  const std::size_t ownPart = static_cast<std::size_t>(rank) * shape.count;
  OutputRule rule{inputs, shape.ranks, 0, shape.count, 0, roundsEachAddition};
  switch (shape.collective) {
    case CollectiveType::AllReduce:
    case CollectiveType::Reduce:
    case CollectiveType::AllGather:
    case CollectiveType::Gather:
      break;
    case CollectiveType::ReduceScatter:
    case CollectiveType::ReduceScatterV:
    case CollectiveType::AllToAll:
      rule.offset = ownPart;
      break;
    case CollectiveType::Broadcast:
      rule.firstSender = root;
      break;
    case CollectiveType::Scatter:
      rule.firstSender = root;
      rule.offset = ownPart;
      break;
    case CollectiveType::SendReceive:
      rule.firstSender = (rank + shape.ranks - 1) % shape.ranks;
      break;
  }
  return rule;
}

std::unique_ptr<TestData> makeCpuTestData() {
  return std::make_unique<TestDataOn<CallingThread>>();
}

}  // namespace mscclpp::perf
