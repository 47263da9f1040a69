// The exchange on a CPU: a thread for each ordered pair of ranks, since all pairs must progress together.
#include <array>
#include <thread>

#include "kernels/kernel_lookup.hpp"
#include "mscclpp/basic/serial_group.hpp"

namespace mscclpp::kernels::cpu {

int exchange(const ExchangeCall& call) {
  using Kernel =
      ExchangeKernel<indexOf(CollectiveType::SendReceive, "ll16"), indexOf(CollectiveType::SendReceive, "pipelined")>;
  const auto args = Kernel::argsFor(call);
  const auto sources = Kernel::sourcesFor<ArraySource>(call);
  const auto sinks = Kernel::sinksFor<ArraySink>(call);
  const auto runPair = [&](int pair) {
    Kernel::Type::run(RenumberedBlock(mscclpp::cpu::SerialGrid(), pair, args.pairCount), args, sources, sinks);
  };
  std::array<std::jthread, MessageList::capacity> others;
  for (int pair = 1; pair < args.pairCount; ++pair) {
    others[static_cast<std::size_t>(pair)] = std::jthread([&runPair, pair] { runPair(pair); });
  }
  runPair(0);
  return 0;
}

}  // namespace mscclpp::kernels::cpu
