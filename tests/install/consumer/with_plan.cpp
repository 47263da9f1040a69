// A program that uses plans: an all-reduce of the library of plans, executed by two ranks.
#include <mscclpp/host/bootstrap/bootstrap.hpp>
#include <mscclpp/host/communicator/communicator.hpp>
#include <mscclpp/kernels/executor.hpp>
#include <mscclpp/kernels/plan/library.hpp>
#include <thread>

int main() {
  using namespace mscclpp;
  const auto id = TcpBootstrap::createUniqueId();
  float sums[2] = {};
  const auto work = [&](int rank) {
    const auto bootstrap = std::make_shared<TcpBootstrap>(rank, 2);
    bootstrap->initialize(id);
    const ExecutionPlan plan(plan::makeLibraryPlan("all_reduce_ring", {.ranks = 2}), rank);
    Executor executor(std::make_shared<Communicator>(bootstrap), Executor::DefaultScratchBufferSize, DeviceType::CPU);
    const float own[2] = {1.0f + rank, 2.0f};
    float all[2] = {};
    executor.execute(rank, own, all, sizeof(own), sizeof(all), DataType::FLOAT32, plan, nullptr);
    sums[rank] = all[0] + all[1];
    executor.reset();
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  return sums[0] == 7 && sums[1] == 7 ? 0 : 1;
}
