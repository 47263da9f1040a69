// Connections over TCP compared with a loop over a plain socket: bandwidth of large writes, latency of small ones. Both
// peers are threads of this process, so this measures software overhead over loopback.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "median.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/channel/host_semaphore.hpp"
#include "mscclpp/host/transport/connection.hpp"
#include "mscclpp/host/transport/context.hpp"
#include "plain_sockets.hpp"
#include "tools/command_line/command_line.hpp"

using namespace mscclpp;
using namespace mscclpp::perf;

namespace {

double secondsOf(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Runs `first` in this thread and `second` in another.
double secondsOfConcurrent(const std::function<void()>& first, const std::function<void()>& second) {
  return secondsOf([&] {
    std::thread other(second);
    first();
    other.join();
  });
}

struct TcpPeer {
  std::shared_ptr<Context> context = Context::create();
  Endpoint endpoint = context->createEndpoint({Transport::Ethernet, DeviceType::CPU});
  std::vector<char> data;
  RegisteredMemory memory;
  RegisteredMemory remote;  // of the other endpoint
  Connection connection;
  std::unique_ptr<Host2HostSemaphore> semaphore;

  explicit TcpPeer(std::size_t bytes)
      : data(bytes), memory(context->registerMemory(data.data(), bytes, Transport::Ethernet)) {}

  void putAndSignal() {
    connection.beginBatch();
    connection.write(remote, 0, memory, 0, 8);
    semaphore->signal();
    connection.endBatch();
  }
};

struct TcpPeerPair {
  explicit TcpPeerPair(std::size_t bytes) : first(bytes), second(bytes) {
    connectTo(first, second);
    connectTo(second, first);
    const SemaphoreStub firstStub(first.connection);
    const SemaphoreStub secondStub(second.connection);
    first.semaphore = std::make_unique<Host2HostSemaphore>(Semaphore(firstStub, remoteCopy(secondStub)));
    second.semaphore = std::make_unique<Host2HostSemaphore>(Semaphore(secondStub, remoteCopy(firstStub)));
  }
  template <class T>
  static T remoteCopy(const T& value) {
    return T::deserialize(value.serialize());
  }
  static void connectTo(TcpPeer& local, const TcpPeer& peer) {
    local.connection = local.context->connect(local.endpoint, remoteCopy(peer.endpoint));
    local.remote = remoteCopy(peer.memory);
  }

  TcpPeer first;
  TcpPeer second;
};

void compareBandwidth(std::size_t size, std::size_t count, int rounds) {
  const double bytes = static_cast<double>(size) * static_cast<double>(count);
  std::vector<double> plain;
  std::vector<double> ours;
  std::vector<char> from(size, 1);
  std::vector<char> to(size);
  TcpPeerPair peers(size);
  for (int round = 0; round < rounds; ++round) {
    const PlainSockets sockets;
    plain.push_back(bytes / secondsOfConcurrent(
                                [&] {
                                  for (std::size_t i = 0; i < count; ++i) sockets.send(0, from.data(), size);
                                  char done;
                                  sockets.receive(0, &done, 1);
                                },
                                [&] {
                                  for (std::size_t i = 0; i < count; ++i) sockets.receive(1, to.data(), size);
                                  sockets.send(1, to.data(), 1);
                                }));
    ours.push_back(bytes / secondsOf([&] {
                     for (std::size_t i = 0; i < count; ++i) {
                       peers.first.connection.write(peers.first.remote, 0, peers.first.memory, 0, size);
                     }
                     peers.first.connection.flush();
                   }));
  }
  std::printf("%10zu B  %8.2f GB/s  %8.2f GB/s  %6.2f\n", size, median(plain) / 1e9, median(ours) / 1e9,
              median(ours) / median(plain));
}

void compareLatency(int count, int rounds) {
  std::vector<double> plain;
  std::vector<double> ours;
  std::vector<double> flushes;
  std::vector<double> rates;
  TcpPeerPair peers(64);
  for (int round = 0; round < rounds; ++round) {
    const PlainSockets sockets;
    const auto pingPong = [&](int end) {
      char message[64] = {};
      for (int i = 0; i < count; ++i) {
        if (end == 0) sockets.send(end, message, sizeof(message));
        sockets.receive(end, message, sizeof(message));
        if (end == 1) sockets.send(end, message, sizeof(message));
      }
    };
    plain.push_back(secondsOfConcurrent([&] { pingPong(0); }, [&] { pingPong(1); }) / count / 2);
    const auto exchange = [&](TcpPeer& end, bool isFirst) {
      for (int i = 0; i < count; ++i) {
        if (isFirst) end.putAndSignal();
        end.semaphore->wait(-1);
        if (!isFirst) end.putAndSignal();
      }
    };
    ours.push_back(secondsOfConcurrent([&] { exchange(peers.first, true); }, [&] { exchange(peers.second, false); }) /
                   count / 2);
    flushes.push_back(secondsOf([&] {
                        for (int i = 0; i < count; ++i) {
                          peers.first.connection.write(peers.first.remote, 0, peers.first.memory, 0, 8);
                          peers.first.connection.flush();
                        }
                      }) /
                      count);
    rates.push_back(10.0 * count / secondsOf([&] {
                      for (int i = 0; i < 10 * count; ++i) {
                        peers.first.connection.write(peers.first.remote, 0, peers.first.memory, 0, 8);
                      }
                      peers.first.connection.flush();
                    }));
  }
  std::printf("one way, plain socket, 64 B:           %7.2f us\n", median(plain) * 1e6);
  std::printf("one way, write of 8 B and signal:      %7.2f us\n", median(ours) * 1e6);
  std::printf("write of 8 B and flush:                %7.2f us\n", median(flushes) * 1e6);
  std::printf("writes of 8 B, back to back:           %7.2f million/s\n", median(rates) / 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  cli::CommandLine commandLine("Compares TCP connections with a plain socket.");
  int rounds = 11;
  commandLine.add("--rounds", rounds, "number of measurements; their median is reported").range(1, 1000);
  if (const auto exitCode = commandLine.parse(argc, argv)) return *exitCode;
  try {
    std::printf("%12s  %13s  %13s  %6s\n", "size", "plain", "write", "ratio");
    for (const std::size_t size :
         {std::size_t{4} << 10, std::size_t{64} << 10, std::size_t{1} << 20, std::size_t{16} << 20}) {
      compareBandwidth(size, (std::size_t{256} << 20) / size, rounds);
    }
    compareLatency(2000, rounds);
  } catch (const BaseError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
