// The interpreters of plans on CPUs.
#include "kernels/plan/interpreters.hpp"

#include <thread>
#include <vector>

#include "mscclpp/basic/partition.hpp"
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/plan/interpreter.hpp"

namespace mscclpp::kernels::cpu {

namespace {

/// One thread as a block of a grid.
struct BlockOfThreads {
  int index;
  int count;
  std::vector<Word128>& memory;

  int blockIndex() const { return index; }
  int blockCount() const { return count; }
  mscclpp::cpu::SerialGroup block() const { return {}; }
  mscclpp::cpu::SerialGroup warp() const { return {}; }
  int warpIndex() const { return 0; }
  int warpCount() const { return 1; }
  std::byte* sharedMemory() const { return reinterpret_cast<std::byte*>(memory.data()); }
};
static_assert(SharedMemoryGrid<BlockOfThreads>);

template <class T>
void interpretBlock(const BlockOfThreads& grid, const plan::ExecutionArgs& args) {
  plan::interpret<T>(grid, args, [] {});
}

}  // namespace

void interpret(DataType type, const PlanLaunch& launch, const plan::ExecutionArgs& args) {
  using Interpreter = void (*)(const BlockOfThreads&, const plan::ExecutionArgs&);
  const Interpreter run = visit(
      type, [](auto tag) -> Interpreter { return interpretBlock<typename decltype(tag)::Type>; },
      []() -> Interpreter { return nullptr; });
  const auto runBlock = [&](int block) {
    std::vector<Word128> memory(ceilDivide(launch.sharedBytes, sizeof(Word128)));
    run({block, launch.blocks, memory}, args);
  };
  std::vector<std::jthread> others;
  for (int block = 1; block < launch.blocks; ++block) others.emplace_back([&, block] { runBlock(block); });
  runBlock(0);
}

}  // namespace mscclpp::kernels::cpu
