// 10 on two CPU ranks that mpirun has started: the ping-pong of 02, over a channel that was set up through MPI.
#include <cstdio>
#include <exception>
#include <memory>

#include "02_ping_pong/ping_pong.hpp"
#include "example.hpp"
#include "mpi_bootstrap.hpp"
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"

using namespace mscclpp;

namespace {

constexpr int count = 1000;
constexpr int rounds = 100;

void run() {
  const auto bootstrap = std::make_shared<example::MpiBootstrap>(MPI_COMM_WORLD);
  example::require(bootstrap->getNranks() == 2, "ping-pong is for two ranks: mpirun -n 2 10_mpi_bootstrap");
  const int rank = bootstrap->getRank();
  Communicator communicator(bootstrap);
  const HostBuffer memory(count * sizeof(std::uint32_t));
  auto* data = static_cast<std::uint32_t*>(memory.data());
  const MemoryChannel channel =
      example::connectTo(1 - rank, communicator, data, memory.bytes(), Transport::SharedMemory);

  example::pingPong(cpu::SerialGroup(), channel.deviceHandle(), data, count, rounds, rank);

  communicator.monitor(DeviceType::CPU)->check();  // throws if a wait failed
  for (int i = 0; i < count; ++i) example::require(data[i] == rounds, "word " + std::to_string(i) + " is wrong");
  if (rank == 0) std::printf("%d words were sent back and forth %d times: right\n", count, rounds);
  bootstrap->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int status = 0;
  try {
    run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, status = 1);
  }
  MPI_Finalize();
  return status;
}
