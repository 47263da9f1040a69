// Cases of port channels: ranks as threads or processes, each with a proxy service; CPU ranks over shared memory, GPU
// ranks over copy engines.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <numeric>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/channel/device_handle.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/proxy/proxy_service.hpp"
#include "port_ping_pong.hpp"
#include "port_rank.hpp"
#include "tests/backend/backend.hpp"
#include "tests/host/spawned_ranks.hpp"

namespace mscclpp::test {

/// Each variant of the operations by turns.
struct EachOperation {
  static constexpr bool overwritesSource = false;

  template <class Channel>
  MSCCLPP_HOST_DEVICE static bool prepare(Channel& channel) {
    return channel.flush();  // the source is no longer read
  }
  template <class Channel>
  MSCCLPP_HOST_DEVICE static bool send(Channel& channel, int round, std::uint64_t bytes) {
    switch (round / 2 % 4) {
      case 0:
        return channel.put(0, bytes) && channel.signal();
      case 1:
        return channel.putWithSignal(0, bytes);
      case 2:
        return channel.putWithSignalAndFlush(0, bytes);
      default:
        return channel.put(0, 0, 8) && channel.put(8, 8, bytes - 8) && channel.signal() && channel.flush();
    }
  }
};

template <class Trigger>
void runPortPingPong(std::shared_ptr<Bootstrap> bootstrap) {
  usePortDevice();
  Communicator communicator(bootstrap);
  PortEnd<Trigger> end(communicator, 1 - bootstrap->getRank(), 300);
  PortBuffer wrong(1);
  const auto channel = end.channel();
  end.service.startProxy();
  bootstrap->barrier();
  runPortBody(1, PingPongPortBody<Trigger, EachOperation>{deviceHandle(channel), end.source.data(), end.target.data(),
                                                          300, 64, bootstrap->getRank(), wrong.data()});
  communicator.monitor(portDevice().type)->check();
  CHECK(wrong.read()[0] == 0);
  end.service.stopProxy();
  bootstrap->barrier();
}

/// Overwrites the source as soon as a flush has returned, before the peer reads: the peer must read the previous
/// values. Each block has its own channel.
struct FlushBody {
  const PortChannelHandle* channels;  ///< one per block
  std::uint64_t* source;
  int words;  ///< per block and round
  int rounds;
  std::uint64_t* failures;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int /*rank*/, const GridType& grid) const {
    const auto block = grid.block();
    auto own = channels[grid.blockIndex()];
    const std::size_t first = static_cast<std::size_t>(grid.blockIndex()) * static_cast<std::size_t>(words);
    for (int round = 0; round < rounds; ++round) {
      const std::uint64_t value = static_cast<std::uint64_t>(round) << 32;
      for (int i = block.rank(); i < words; i += block.size()) source[first + i] = value + first + i;
      block.sync();
      if (block.rank() == 0) {
        const std::size_t at =
            (static_cast<std::size_t>(round) * static_cast<std::size_t>(grid.blockCount()) * words + first) * 8;
        bool good = own.put(at, first * 8, static_cast<std::uint64_t>(words) * 8);
        good = (round % 2 == 0 ? own.flush() : own.putWithSignalAndFlush(at, first * 8, 8)) && good;
        if (!good) arch::reduceAdd<arch::Order::Relaxed, arch::Scope::Device>(failures, std::uint64_t{1});
      }
      block.sync();
    }
  }
};

inline void flushFromManyChannels(std::shared_ptr<Bootstrap> bootstrap) {
  usePortDevice();
  const int rank = bootstrap->getRank();
  const int peer = 1 - rank;
  constexpr int blocks = 3, words = 64, rounds = 20;
  Communicator communicator(bootstrap);
  auto options = portOptions();
  options.fifos = 2;
  options.fifoSize = 4;
  PortEnd<ProxyTrigger> end(communicator, peer, std::size_t{blocks} * words * rounds, options);
  std::vector<PortChannelHandle> handles;
  std::vector<PortChannel> channels{end.channel()};
  for (int i = 1; i < blocks; ++i) {
    const auto connection = communicator.connect({portTransport(), portDevice()}, peer, i).get();
    const auto semaphore = end.service.addSemaphore(communicator.buildSemaphore(connection, peer, i).get());
    channels.push_back(end.service.portChannel(semaphore, end.dst, end.src));
  }
  for (const auto& channel : channels) handles.push_back(channel.deviceHandle());
  PortBuffer failures(1);
  const PortBuffer memory((handles.size() * sizeof(handles[0]) + 7) / 8);
  memory.writeBytes(handles.data(), handles.size() * sizeof(handles[0]));
  end.service.startProxy();
  bootstrap->barrier();
  runPortBody(blocks, FlushBody{reinterpret_cast<const PortChannelHandle*>(memory.data()), end.source.data(), words,
                                rounds, failures.data()});
  communicator.monitor(portDevice().type)->check();
  CHECK(failures.read()[0] == 0);
  bootstrap->barrier();  // the peer's kernel has ended, its last flush included
  std::vector<std::uint64_t> expected;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for (std::uint64_t i = 0; i < blocks * words; ++i) expected.push_back((round << 32) + i);
  }
  CHECK(end.target.read() == expected);
  bootstrap->barrier();
}

/// Each lane of a warp puts its own word; then one signal.
struct PutEachBody {
  PortChannelHandle channel;
  int rank;
  std::uint64_t* failures;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int /*rank*/, const GridType& grid) const {
    auto own = channel;
    const auto warp = grid.warp();
    const auto at = static_cast<std::uint64_t>(warp.rank()) * 8;
    bool good = own.putPerLane(warp, at, at, 8);
    warp.sync();
    if (warp.rank() == 0) good = own.signal() && own.wait() && good;
    if (!good) arch::reduceAdd<arch::Order::Relaxed, arch::Scope::Device>(failures, std::uint64_t{1});
  }
};

inline void putFromEachLane(std::shared_ptr<Bootstrap> bootstrap) {
  usePortDevice();
  Communicator communicator(bootstrap);
  constexpr std::size_t words = 32;
  PortEnd<ProxyTrigger> end(communicator, 1 - bootstrap->getRank(), words);
  std::vector<std::uint64_t> values(words);
  std::iota(values.begin(), values.end(), 100u);
  end.source.write(values);
  PortBuffer failures(1);
  const auto channel = end.channel();
  end.service.startProxy();
  bootstrap->barrier();
  runPortBody(1, PutEachBody{channel.deviceHandle(), bootstrap->getRank(), failures.data()});
  communicator.monitor(portDevice().type)->check();
  CHECK(failures.read()[0] == 0);
  const auto arrived = end.target.read();
  for (int i = 0; i < portWarpWidth; ++i) CHECK(arrived[i] == values[i]);
  bootstrap->barrier();
}

/// One request, then a flush.
template <class Trigger>
struct OneRequestBody {
  BasicBasePortChannelHandle<Trigger> channel;
  PortRequest request;
  std::uint64_t* flushed;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int /*rank*/, const GridType& grid) const {
    if (grid.block().rank() != 0) return;
    auto own = channel;
    own.semaphoreId_ = request.semaphore;
    if ((request.type & TriggerValue) != 0) {
      own.fifo_.push(Trigger::make(request));
    } else if ((request.type & TriggerData) != 0) {
      own.put(request.dstMemory, request.dstOffset, request.srcMemory, request.srcOffset, request.size);
    } else {
      own.signal();
    }
    *flushed += own.flush();
  }
};

inline std::shared_ptr<Bootstrap> singleRankBootstrap() {
  return std::make_shared<SocketpairBootstrap>(0, std::vector<int>{-1});
}

/// A rank connected to itself makes one request. Returns the service's error message, or "" on success.
template <class Trigger>
std::string errorFor(const PortRequest& request) {
  usePortDevice();
  Communicator communicator(singleRankBootstrap());
  PortEnd<Trigger> end(communicator, 0, 8);
  PortBuffer flushed(1);
  const auto channel = end.service.basePortChannel(0);
  end.service.startProxy();
  runPortBody(1, OneRequestBody<Trigger>{channel.deviceHandle(), request, flushed.data()});
  std::string errorText;
  try {
    end.service.stopProxy();
  } catch (const Error& error) {
    CHECK(error.getErrorCode() == ErrorCode::InvalidUsage);
    errorText = error.what();
  }
  // The kernel's owner gets the same error as the kernel: from the service, and from the monitor of its waits.
  CHECK(flushed.read()[0] == (errorText.empty() ? 1 : 0));
  CHECK(communicator.monitor(portDevice().type)->failed() == !errorText.empty());
  for (const auto word : end.target.read()) CHECK(word == 0);
  return errorText;
}

inline bool contains(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE(text, " does not contain ", part);
  return found;
}

/// Puts single words by each operation, from a source that changes right after each flush or put by value.
template <class Trigger>
struct WordsBody {
  BasicPortChannelHandle<Trigger> channel;
  std::uint64_t* source;
  std::uint64_t* failures;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int /*rank*/, const GridType& grid) const {
    if (grid.block().rank() != 0) return;
    auto own = channel;
    bool good = true;
    for (std::uint64_t i = 0; i < 4; ++i) source[i] = 0xf000000000000000u + i;  // bits that no field of a trigger has
    good = own.put(8, 16, 8) && good;
    good = own.putWithSignal(24, 8) && own.wait() && good;
    good = own.put(33, 1, 8) && good;  // not aligned
    good = own.flush() && good;
    for (std::uint64_t i = 0; i < 4; ++i) source[i] = 0x0800000000000000u + i;
    good = own.putWithSignalAndFlush(56, 0, 8) && own.wait() && good;
    if (!good) *failures += 1;
  }
};

/// The target memory of a rank connected to itself after WordsBody.
template <class Trigger>
void checkWords(bool byValue) {
  usePortDevice();
  Communicator communicator(singleRankBootstrap());
  PortEnd<Trigger> end(communicator, 0, 8);
  PortBuffer failures(1);
  auto handle = end.channel().deviceHandle();
  CHECK(handle.srcBytes_ == (end.connection.supportsWriteValue() ? 64 : 0));
  if (!byValue) handle.srcBytes_ = 0;
  end.service.startProxy();
  runPortBody(1, WordsBody<Trigger>{handle, end.source.data(), failures.data()});
  communicator.monitor(portDevice().type)->check();
  end.service.stopProxy();
  CHECK(failures.read()[0] == 0);
  const std::uint64_t odd = 0x01f0000000000000u;  // bytes 1 to 8 of words 0 and 1
  const auto words = end.target.read();
  const std::uint64_t base = 0xf000000000000000u;
  CHECK(words[0] == 0);
  CHECK(words[1] == base + 2);
  CHECK(words[3] == base + 3);
  CHECK(words[4] == odd << 8);
  CHECK(words[5] == odd >> 56);
  CHECK(words[7] == 0x0800000000000000u);
}

TEST_CASE("port channel: single words, by value and by copy") {
  for (const bool byValue : {true, false}) {
    checkWords<ProxyTrigger>(byValue);
    checkWords<WideTrigger>(byValue);
  }
}

TEST_CASE("port channel: an invalid request is reported, and no part of it is executed") {
  const PortRequest good{TriggerData, 0, 8, 1, 0, 16, 0};
  CHECK(errorFor<ProxyTrigger>(good) == "");
  CHECK(errorFor<WideTrigger>(good) == "");
  const auto with = [&](auto change) {
    PortRequest request = good;
    change(request);
    return request;
  };
  const auto both = [&](const PortRequest& request, const std::string& part) {
    CHECK(contains(errorFor<ProxyTrigger>(request), part));
    CHECK(contains(errorFor<WideTrigger>(request), part));
  };
  both(with([](auto& r) { r.dstMemory = 2; }), "there is no memory 2; 2 have been added");
  both(with([](auto& r) { r.srcMemory = 511; }), "there is no memory 511");
  both(with([](auto& r) { r.semaphore = 1; }), "there is no semaphore 1; 1 have been added");
  both(with([](auto& r) { r.size = 65; }), "exceed the destination memory of 64 bytes");
  both(with([](auto& r) { r.srcOffset = 56; }), "exceed the source memory");
  both(with([](auto& r) { r.dstOffset = 0xffffffff; }),
       "trigger 0 of FIFO 0 (put, semaphore 0, 16 bytes from memory 1 + 0 to memory 0 + 4294967295): ");
  both(PortRequest{TriggerFlag, 0, 0, 0, 0, 0, 9}, "trigger 0 of FIFO 0 (signal, semaphore 9)");
  const auto large = with([](auto& r) { r.size = std::uint64_t{1} << 32; });
  CHECK(contains(errorFor<ProxyTrigger>(large), "the size, 4294967296, does not fit the 16-byte trigger"));
  CHECK(contains(errorFor<WideTrigger>(large), "4294967296 bytes from memory 1"));
  const auto many = with([](auto& r) { r.srcMemory = 512; });
  CHECK(contains(errorFor<ProxyTrigger>(many), "id of the source memory, 512, does not fit"));
  CHECK(contains(errorFor<WideTrigger>(many), "there is no memory 512"));
  const auto overflowing = with([](auto& r) { r.dstOffset = ~std::uint64_t{0}; });
  CHECK(contains(errorFor<WideTrigger>(overflowing), "exceed the destination memory"));
  const auto unlessRefused = [](const char* part) {
    return AllIBTransports.has(portTransport()) ? "do not write values" : part;
  };
  both(PortRequest{TriggerValue, 0, 60, 0, 0, 5, 0}, unlessRefused("exceed the destination memory of 64 bytes"));
  both(PortRequest{TriggerValue, 0, 4, 0, 0, 5, 0}, unlessRefused("aligned to 8 bytes"));
  both(PortRequest{TriggerValue | TriggerFlag, 7, 0, 0, 0, 5, 0},
       "(put of a value + signal, semaphore 0, to memory 7 + 0): there is no memory 7");
}

TEST_CASE("port channel: memory and semaphore ids, including those beyond the compact trigger's range") {
  usePortDevice();
  Communicator communicator(singleRankBootstrap());
  PortEnd<WideTrigger> wide(communicator, 0, 4);
  PortEnd<ProxyTrigger> compact(communicator, 0, 4);
  CHECK(compact.service.nextMemoryId() == 2);
  CHECK(compact.service.nextMemoryId(510) == 2);
  CHECK_THROWS_AS(compact.service.nextMemoryId(511), Error);
  CHECK_THROWS_AS(compact.service.nextMemoryId(0), Error);
  CHECK_THROWS_AS(compact.service.addMemory(RegisteredMemory()), Error);
  CHECK_THROWS_AS(compact.service.addSemaphore(nullptr), Error);
  CHECK_THROWS_AS(compact.service.portChannel(1, 0, 0), Error);
  CHECK_THROWS_AS(compact.service.semaphore(1), Error);
  const auto memory = communicator.registerMemory(compact.source.data(), 32, portTransport());
  const auto target = communicator.registerMemory(wide.target.data(), 32, portTransport());
  for (MemoryId id = 2; id < 512; ++id) CHECK(compact.service.addMemory(memory) == id);
  CHECK_THROWS_WITH_AS(compact.service.addMemory(memory), doctest::Contains("WideProxyService"), Error);
  for (MemoryId id = 2; id < 700; ++id) CHECK(wide.service.addMemory(id == 699 ? target : memory) == id);
  SemaphoreId last = 0;
  while (last < 1100) last = wide.service.addSemaphore(wide.service.semaphore(0));
  compact.source.write({7, 8, 9, 10});
  PortBuffer flushed(1);
  const auto channel = wide.service.basePortChannel(last);
  wide.service.startProxy();
  runPortBody(1, OneRequestBody<WideTrigger>{channel.deviceHandle(), PortRequest{TriggerData, 699, 8, 698, 0, 16, last},
                                             flushed.data()});
  wide.service.stopProxy();
  CHECK(flushed.read()[0] == 1);
  CHECK(wide.target.read() == std::vector<std::uint64_t>{0, 7, 8, 0});
}

/// Puts one word and signals, without waiting.
struct PutWordBody {
  PortChannelHandle channel;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int /*rank*/, const GridType& grid) const {
    if (grid.block().rank() != 0) return;
    auto own = channel;
    own.putWithSignal(0, 8);
  }
};

TEST_CASE("port channel: service and channels are destroyed in any order") {
  usePortDevice();
  Communicator communicator(singleRankBootstrap());
  PortChannel channel;
  CHECK_THROWS_AS(channel.deviceHandle(), Error);
  CHECK_THROWS_AS(PortChannel(0, std::shared_ptr<Host2DeviceSemaphore>(), nullptr, 0, 0), Error);
  for (int round = 0; round < 4; ++round) {
    auto end = std::make_unique<PortEnd<ProxyTrigger>>(communicator, 0, 4);
    end->source.write({static_cast<std::uint64_t>(round) + 1, 0, 0, 0});
    if (round % 2 == 0) end->service.startProxy(true);
    channel = end->channel();
    runPortBody(1, PutWordBody{channel.deviceHandle()});
    if (round % 2 == 1) end->service.startProxy();
    end->service.stopProxy();  // the request is complete when it returns
    CHECK(end->target.read()[0] == static_cast<std::uint64_t>(round) + 1);
    if (round == 2) channel = {};
    end.reset();
    if (round != 2) channel.deviceHandle();  // the channel keeps its resources alive
  }
}

/// A flush over a proxy with a custom handler: it waits until the handler has returned.
TEST_CASE("port channel: over a proxy with a custom handler") {
  usePortDevice();
  Communicator communicator(singleRankBootstrap());
  PortEnd<ProxyTrigger> end(communicator, 0, 8);
  std::vector<PortRequest> seen;
  const auto proxy = std::make_shared<Proxy>([&](const ProxyTrigger& trigger) { seen.push_back(trigger.request()); },
                                             ProxyOptions{.thread = {.device = portDevice()}});
  const BasePortChannel channel(77, end.service.semaphore(0), proxy);
  PortBuffer flushed(1);
  proxy->start();
  runPortBody(1, OneRequestBody<ProxyTrigger>{channel.deviceHandle(), PortRequest{TriggerData, 1, 2, 3, 4, 5, 77},
                                              flushed.data()});
  proxy->stop();
  CHECK(flushed.read()[0] == 1);
  REQUIRE(seen.size() == 2);
  CHECK(seen[0].type == TriggerData);
  CHECK(seen[0].size == 5);
  CHECK(seen[0].semaphore == 77);
  CHECK(seen[1].type == TriggerSync);
}

inline void runPortPingPongs(std::shared_ptr<Bootstrap> bootstrap) {
  runPortPingPong<ProxyTrigger>(bootstrap);
  runPortPingPong<WideTrigger>(bootstrap);
}

TEST_CASE("port channel: data arrives before the signal, ranks as threads") {
  runAsThreads(2, runPortPingPongs);
}
TEST_CASE("port channel: data arrives before the signal, ranks as processes") {
  runAsProcesses(2, "one process plays over a port channel");
}
TEST_CASE("one process plays over a port channel" * doctest::skip()) {
  runPortPingPongs(bootstrapOfProcess());
}

TEST_CASE("port channel: after a flush the source can be reused, ranks as threads") {
  runAsThreads(2, flushFromManyChannels);
}
TEST_CASE("port channel: after a flush the source can be reused, ranks as processes") {
  runAsProcesses(2, "one process flushes many channels");
}
TEST_CASE("one process flushes many channels" * doctest::skip()) {
  flushFromManyChannels(bootstrapOfProcess());
}

TEST_CASE("port channel: a put by each lane of a warp") {
  runAsThreads(2, putFromEachLane);
}

}  // namespace mscclpp::test
