// Transport::Ethernet with GPU memory at either end; ranks that share a GPU.
#include <doctest/doctest.h>

#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "mscclpp/host/channel/host_semaphore.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "tcp_pair.hpp"
#include "tcp_port_cases.hpp"
#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

const EndpointConfig overTcp{Transport::Ethernet, DeviceType::GPU};

std::vector<char> read(const void* data, std::size_t bytes) {
  std::vector<char> host(bytes);
  gpuMemcpy(host.data(), static_cast<const char*>(data), bytes);
  return host;
}

std::vector<char> noise(std::size_t bytes, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<char> values(bytes);
  for (auto& value : values) value = static_cast<char>(random());
  return values;
}

struct Ends {
  Ends() {
    const Endpoint first = contexts[0]->createEndpoint(overTcp);
    const Endpoint second = contexts[1]->createEndpoint(overTcp);
    connections[0] = contexts[0]->connect(first, remoteCopy(second));
    connections[1] = contexts[1]->connect(second, remoteCopy(first));
  }
  std::array<std::shared_ptr<Context>, 2> contexts{Context::create(), Context::create()};
  std::array<Connection, 2> connections;
};

__global__ void waitAndSum(Host2DeviceSemaphoreHandle semaphore, const std::uint64_t* data, int words,
                           std::uint64_t* sum) {
  auto own = semaphore;
  *sum = 0;
  if (!own.wait()) return;
  for (int i = 0; i < words; ++i) *sum += data[i];
}

}  // namespace

TEST_CASE("TCP: data of any size between GPU and host memory") {
  MSCCLPP_CUDATHROW(cudaSetDevice(0));
  Ends ends;
  constexpr std::size_t bytes = 5'000'003;
  constexpr std::size_t guard = 256;
  const auto values = noise(bytes, 1);
  const GpuBuffer<char> gpuSource(bytes);
  gpuMemcpy(gpuSource.data(), values.data(), bytes);
  std::vector<char> hostSource = values;
  const GpuBuffer<char> gpuTarget(bytes + guard);
  std::vector<char> hostTarget(bytes + guard);
  const std::array sources{ends.contexts[0]->registerMemory(gpuSource.data(), bytes, Transport::Ethernet),
                           ends.contexts[0]->registerMemory(hostSource.data(), bytes, Transport::Ethernet)};
  const std::array targets{ends.contexts[1]->registerMemory(gpuTarget.data(), bytes, Transport::Ethernet),
                           ends.contexts[1]->registerMemory(hostTarget.data(), bytes, Transport::Ethernet)};
  const std::array remotes{remoteCopy(targets[0]), remoteCopy(targets[1])};
  auto& connection = ends.connections[0];
  std::mt19937_64 random(2);
  std::array<std::vector<char>, 2> expected{std::vector<char>(bytes + guard), std::vector<char>(bytes + guard)};
  const auto copy = [&](std::size_t size) {
    const std::size_t from = random() % (bytes - size + 1);
    const std::size_t to = random() % (bytes - size + 1);
    const std::size_t which = random() % 2;
    connection.write(remotes[which], to, sources[random() % 2], from, size);
    std::memcpy(expected[which].data() + to, values.data() + from, size);
  };
  constexpr std::size_t chunk = std::size_t{256} << 10;
  for (std::size_t size : {std::size_t{1}, std::size_t{7}, std::size_t{16384}, chunk - 1, chunk, chunk + 1, 4 * chunk,
                           4 * chunk + 1, 9 * chunk - 3, bytes}) {
    for (int i = 0; i < 4; ++i) copy(size);
  }
  for (int i = 0; i < 200; ++i) copy(1 + random() % (std::size_t{1} << random() % 21));
  connection.flush();
  CHECK(connection.completed() == connection.issued());
  CHECK(read(gpuTarget.data(), bytes + guard) == expected[0]);
  CHECK(hostTarget == expected[1]);
}

TEST_CASE("TCP: a kernel that sees the signal sees the data") {
  MSCCLPP_CUDATHROW(cudaSetDevice(0));
  Ends ends;
  constexpr int words = 60'000;
  const GpuBuffer<std::uint64_t> source(words);
  const GpuBuffer<std::uint64_t> target(words);
  const GpuBuffer<std::uint64_t> sum(1);
  const auto local = ends.contexts[0]->registerMemory(source.data(), source.bytes(), Transport::Ethernet);
  const auto inbox = ends.contexts[1]->registerMemory(target.data(), target.bytes(), Transport::Ethernet);
  const auto remote = remoteCopy(inbox);
  const SemaphoreStub here(ends.connections[0]);
  const SemaphoreStub there(ends.connections[1]);
  Host2DeviceSemaphore sender(Semaphore(here, SemaphoreStub::deserialize(there.serialize())));
  Host2DeviceSemaphore receiver(Semaphore(there, SemaphoreStub::deserialize(here.serialize())));
  CudaStreamWithFlags stream(cudaStreamNonBlocking);
  for (std::uint64_t round = 1; round <= 20; ++round) {
    const std::vector<std::uint64_t> values(words, round);
    gpuMemcpy(source.data(), values.data(), values.size());
    // The kernel waits before anything is sent, so no copy may depend on its completion.
    waitAndSum<<<1, 1, 0, stream>>>(receiver.deviceHandle(), target.data(), words, sum.data());
    MSCCLPP_CUDATHROW(cudaGetLastError());
    ends.connections[0].write(remote, 0, local, 0, source.bytes());
    sender.signal();
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
    std::uint64_t result = 0;
    gpuMemcpy(&result, sum.data(), 1);
    CHECK(result == round * words);
  }
}

TEST_CASE("TCP: an update in host memory arrives after data in GPU memory") {
  MSCCLPP_CUDATHROW(cudaSetDevice(0));
  Ends ends;
  constexpr std::size_t bytes = 3'000'000;
  const GpuBuffer<char> source(bytes);
  const GpuBuffer<char> target(bytes);
  alignas(8) std::uint64_t word = 0;
  const auto local = ends.contexts[0]->registerMemory(source.data(), bytes, Transport::Ethernet);
  const auto inbox = ends.contexts[1]->registerMemory(target.data(), bytes, Transport::Ethernet);
  const auto counter = ends.contexts[1]->registerMemory(&word, 8, Transport::Ethernet);
  std::uint64_t sent = 0;
  for (std::uint64_t round = 1; round <= 20; ++round) {
    const auto values = noise(bytes, static_cast<unsigned>(round));
    gpuMemcpy(source.data(), values.data(), bytes);
    ends.connections[0].write(remoteCopy(inbox), 0, local, 0, bytes);
    ends.connections[0].updateAndSync(remoteCopy(counter), 0, &sent, round);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::atomic_ref(word).load(std::memory_order_acquire) != round) {
      REQUIRE(std::chrono::steady_clock::now() < deadline);
      std::this_thread::yield();
    }
    CHECK(read(target.data(), bytes) == values);
  }
}

TEST_CASE("TCP: deregistered GPU memory is not accessed any more") {
  MSCCLPP_CUDATHROW(cudaSetDevice(0));
  Ends ends;
  constexpr std::size_t bytes = 4 << 20;
  const GpuBuffer<char> source(bytes);
  gpuMemset(source.data(), 1, bytes);
  const GpuBuffer<char> target(bytes);
  const auto local = ends.contexts[0]->registerMemory(source.data(), bytes, Transport::Ethernet);
  auto inbox = ends.contexts[1]->registerMemory(target.data(), bytes, Transport::Ethernet);
  const auto remote = remoteCopy(inbox);
  std::atomic<bool> isWriting = false;
  Failure failure;
  std::thread writer([&] {
    failure = failureOf([&] {
      while (true) {
        ends.connections[0].write(remote, 0, local, 0, bytes);
        isWriting = true;
      }
    });
  });
  while (!isWriting) std::this_thread::yield();
  inbox = RegisteredMemory();
  gpuMemset(target.data(), 7, bytes);
  writer.join();
  CHECK(failure.code == ErrorCode::RemoteError);
  CHECK(failure.text.find("no longer registered") != std::string::npos);
  CHECK(read(target.data(), bytes) == std::vector<char>(bytes, 7));
}

TEST_CASE("TCP: kernels put, signal, flush and wait through port channels") {
  runAsThreads(2, runPortsOverTcp);
}
