// The exchange on a CPU: a thread for each ordered pair of ranks, since all pairs must progress together.
#include <array>
#include <thread>

#include "kernels/kernel_lookup.hpp"
#include "mscclpp/basic/serial_group.hpp"

namespace mscclpp::kernels::cpu {

namespace {

template <class Kernel, class Sources, class Sinks>
void run(const typename Kernel::Type::Args& args, const Sources& sources, const Sinks& sinks) {
  const auto runPair = [&](int pair) {
    Kernel::Type::run(RenumberedBlock(mscclpp::cpu::SerialGrid(), pair, args.pairCount), args, sources, sinks);
  };
  std::array<std::jthread, MessageList::capacity> others;
  for (int pair = 1; pair < args.pairCount; ++pair) {
    others[static_cast<std::size_t>(pair)] = std::jthread([&runPair, pair] { runPair(pair); });
  }
  runPair(0);
}

}  // namespace

int exchange(const ExchangeCall& call) {
  using Kernel =
      ExchangeKernel<indexOf(CollectiveType::SendReceive, "ll16"), indexOf(CollectiveType::SendReceive, "pipelined")>;
  const auto args = Kernel::argsFor(call);
  if (call.joined != nullptr) {
    run<Kernel>(args, Kernel::joinedSourcesFor(call), Kernel::joinedSinksFor(call));
  } else {
    run<Kernel>(args, Kernel::sourcesFor<ArraySource>(call), Kernel::sinksFor<ArraySink>(call));
  }
  return 0;
}

}  // namespace mscclpp::kernels::cpu
