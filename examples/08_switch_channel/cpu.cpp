// 08 on CPU ranks, one process each: a loop over the memory of all ranks replaces the switch. The way to write and
// debug such a kernel without NVSwitch.
#include <vector>

#include "example.hpp"
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/host/channel/nvls.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "switch_all_reduce.hpp"

using namespace mscclpp;

namespace {

void reduce(ProcessGroup& group) {
  const int rank = group.rank();
  const int ranks = group.size();
  const auto communicator = std::make_shared<Communicator>(group.connect());
  std::vector<int> everyone;
  for (int r = 0; r < ranks; ++r) everyone.push_back(r);

  // Room for two halves of up to 65536 numbers.
  const HostBuffer buffer(2 * 65536 * sizeof(bf16));
  const auto connection = connectNvlsCollectiveOn(DeviceType::CPU, communicator, everyone, buffer.bytes());
  const SwitchChannel channel = connection->bindMemory(buffer.data(), buffer.bytes());

  for (const std::size_t count : {1, 65536, 4099, 8, 0, 20000}) {
    const std::vector<bf16> input = example::contributions(rank, count);
    std::vector<bf16> output(count);
    const bool complete =
        example::switchAllReduce(cpu::SerialGrid(), channel.deviceHandle(), input.data(), output.data(), count);
    if (!complete) communicator->monitor(DeviceType::CPU)->check();
    example::requireSum(output, ranks);
  }
  if (rank == 0) std::printf("all-reduce over %d CPU ranks, as a switch would do it: right\n", ranks);
  communicator->bootstrap()->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return example::runOnRanks(4, argc, argv, reduce);
}
