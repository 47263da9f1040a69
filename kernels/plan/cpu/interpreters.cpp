// The interpreters of plans on CPUs.
#include "kernels/plan/interpreters.hpp"

#include <thread>
#include <vector>

#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/plan/interpreter.hpp"

namespace mscclpp::kernels::cpu {

namespace {

/// One thread as a block of a grid.
struct BlockOfThreads {
  int index;
  int count;

  int blockIndex() const { return index; }
  int blockCount() const { return count; }
  mscclpp::cpu::SerialGroup block() const { return {}; }
  mscclpp::cpu::SerialGroup warp() const { return {}; }
  int warpIndex() const { return 0; }
  int warpCount() const { return 1; }
};
static_assert(Grid<BlockOfThreads>);

template <class T>
void interpretBlock(const BlockOfThreads& grid, const plan::ExecutionArgs& args) {
  plan::interpret<T>(grid, args);
}

}  // namespace

void interpret(DataType type, const PlanLaunch& launch, const plan::ExecutionArgs& args) {
  using Interpreter = void (*)(const BlockOfThreads&, const plan::ExecutionArgs&);
  const Interpreter run = visit(
      type, [](auto tag) -> Interpreter { return interpretBlock<typename decltype(tag)::Type>; },
      []() -> Interpreter { return nullptr; });
  std::vector<std::jthread> others;
  for (int block = 1; block < launch.blocks; ++block)
    others.emplace_back([&, block] { run({block, launch.blocks}, args); });
  run({0, launch.blocks}, args);
}

}  // namespace mscclpp::kernels::cpu
