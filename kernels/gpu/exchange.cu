// The kernels of exchanges on a GPU.
#include "kernels/kernel_lookup.hpp"
#include "mscclpp/kernel.cuh"

namespace mscclpp::kernels::gpu {

int exchange(const ExchangeCall& call) {
  using Kernel =
      ExchangeKernel<indexOf(CollectiveType::SendReceive, "ll16"), indexOf(CollectiveType::SendReceive, "ll128"),
                     indexOf(CollectiveType::SendReceive, "pipelined")>;
  static_assert(messageAlgorithms == 3, "the kernel has all algorithms of messages");
  const auto args = Kernel::argsFor(call);
  bool areAligned = call.joined == nullptr;
  for (int m = 0; m < call.list.count; ++m) {
    const MessageList::Message& message = call.list.messages[static_cast<std::size_t>(m)];
    areAligned = areAligned && isAlignedArray(static_cast<const Byte*>(message.input), message.bytes) &&
                 isAlignedArray(static_cast<const Byte*>(message.output), message.bytes);
  }
  if (areAligned) {
    return static_cast<int>(launch<Kernel::Type>(call.shape, call.stream, args,
                                                 Kernel::sourcesFor<AlignedArraySource>(call),
                                                 Kernel::sinksFor<AlignedArraySink>(call), call.start));
  }
  return static_cast<int>(launch<Kernel::Type>(call.shape, call.stream, args, Kernel::joinedSourcesFor(call),
                                               Kernel::joinedSinksFor(call), call.start));
}

}  // namespace mscclpp::kernels::gpu
