// Cases of port channels: ranks as threads or processes, each with a proxy service; CPU ranks over shared memory, GPU ranks over copy engines.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <numeric>

#include "backend/backend.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/device_handle.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/proxy_service.hpp"
#include "port_rank.hpp"
#include "spawned_ranks.hpp"

namespace mscclpp::test {

/// Each rank in turn writes new words, puts them and signals, in each of the ways there are; the other waits and looks at all of them.
template <class Trigger>
struct PingPongPortBody {
  BasicPortChannelHandle<Trigger> channel;
  std::uint64_t* source;
  const std::uint64_t* target;
  int words;
  int rounds;
  int rank;
  std::uint64_t* wrong;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int /*rank*/, const GridType& grid) const {
    auto own = channel;
    const auto block = grid.block();
    const std::uint64_t bytes = static_cast<std::uint64_t>(words) * 8;
    std::uint64_t errors = 0;
    for (int round = 0; round < rounds; ++round) {
      const std::uint64_t value = static_cast<std::uint64_t>(round) * 1000003;
      if (round % 2 == rank) {
        if (block.rank() == 0) errors += own.flush() ? 0 : 1;  // nobody reads the source any more
        block.sync();
        for (int i = block.rank(); i < words; i += block.size()) source[i] = value + static_cast<std::uint64_t>(i);
        block.sync();
        if (block.rank() == 0) {
          bool good = true;
          switch (round / 2 % 4) {
            case 0:
              good = own.put(0, bytes) && own.signal();
              break;
            case 1:
              good = own.putWithSignal(0, bytes);
              break;
            case 2:
              good = own.putWithSignalAndFlush(0, bytes);
              break;
            default:
              good = own.put(0, 0, 8) && own.put(8, 8, bytes - 8) && own.signal() && own.flush();
              break;
          }
          errors += good ? 0 : 1;
        }
      } else {
        if (block.rank() == 0) errors += own.wait() ? 0 : 1;
        block.sync();
        for (int i = block.rank(); i < words; i += block.size())
          errors += target[i] == value + static_cast<std::uint64_t>(i) ? 0 : 1;
        block.sync();
      }
    }
    if (errors != 0) arch::reduceAdd<arch::Order::Relaxed, arch::Scope::Device>(wrong, errors);
  }
};

template <class Trigger>
void playPortPingPong(std::shared_ptr<Bootstrap> bootstrap) {
  usePortDevice();
  Communicator communicator(bootstrap);
  PortEnd<Trigger> end(communicator, 1 - bootstrap->getRank(), 300);
  PortBuffer wrong(1);
  const auto channel = end.channel();
  end.service.startProxy();
  bootstrap->barrier();
  runPortBody(1, PingPongPortBody<Trigger>{deviceHandle(channel), end.source.data(), end.target.data(), 300, 64,
                                           bootstrap->getRank(), wrong.data()});
  communicator.monitor(portDevice().type)->check();
  CHECK(wrong.read()[0] == 0);
  end.service.stopProxy();
  bootstrap->barrier();
}

/// Overwrites the source as soon as a flush says so, before anybody looks: what arrived must be the values before. Each block has a channel of its own.
struct FlushBody {
  const PortChannelHandle* channels;  ///< one a block
  std::uint64_t* source;
  int words;  ///< a block and round
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

/// Every lane of a warp puts a word of its own; then one signal.
struct PutEachBody {
  PortChannelHandle channel;
  int rank;
  std::uint64_t* failures;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int /*rank*/, const GridType& grid) const {
    auto own = channel;
    const auto warp = grid.warp();
    const auto at = static_cast<std::uint64_t>(warp.rank()) * 8;
    bool good = own.putEach(warp, at, at, 8);
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

/// One request, waited for by a flush.
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

inline std::shared_ptr<Bootstrap> lonelyBootstrap() {
  return std::make_shared<SocketpairBootstrap>(0, std::vector<int>{-1});
}

/// A rank that talks to itself makes one request. Returns what the service says of it; empty if all is well.
template <class Trigger>
std::string complaintAbout(const PortRequest& request) {
  usePortDevice();
  Communicator communicator(lonelyBootstrap());
  PortEnd<Trigger> end(communicator, 0, 8);
  PortBuffer flushed(1);
  const auto channel = end.service.basePortChannel(0);
  end.service.startProxy();
  runPortBody(1, OneRequestBody<Trigger>{channel.deviceHandle(), request, flushed.data()});
  std::string complaint;
  try {
    end.service.stopProxy();
  } catch (const Error& error) {
    CHECK(error.getErrorCode() == ErrorCode::InvalidUsage);
    complaint = error.what();
  }
  // What the kernel was told, its owner is told too: here by the service, and by the monitor that its waits belong to.
  CHECK(flushed.read()[0] == (complaint.empty() ? 1 : 0));
  CHECK(communicator.monitor(portDevice().type)->failed() == !complaint.empty());
  for (const auto word : end.target.read()) CHECK(word == 0);
  return complaint;
}

inline bool contains(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE(text, " does not contain ", part);
  return found;
}

/// Puts single words in every way, from a source that changes right after each flush or put by value.
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

/// What a lonely rank's memory is after WordsBody.
template <class Trigger>
void checkWords(bool byValue) {
  usePortDevice();
  Communicator communicator(lonelyBootstrap());
  PortEnd<Trigger> end(communicator, 0, 8);
  PortBuffer failures(1);
  auto handle = end.channel().deviceHandle();
  CHECK(handle.srcBytes_ == (end.connection.writesValues() ? 64 : 0));
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

TEST_CASE("port channel: a bad request is named, and nothing of it is done") {
  const PortRequest good{TriggerData, 0, 8, 1, 0, 16, 0};
  CHECK(complaintAbout<ProxyTrigger>(good) == "");
  CHECK(complaintAbout<WideTrigger>(good) == "");
  const auto with = [&](auto change) {
    PortRequest request = good;
    change(request);
    return request;
  };
  const auto both = [&](const PortRequest& request, const std::string& part) {
    CHECK(contains(complaintAbout<ProxyTrigger>(request), part));
    CHECK(contains(complaintAbout<WideTrigger>(request), part));
  };
  both(with([](auto& r) { r.dstMemory = 2; }), "there is no memory 2; 2 have been added");
  both(with([](auto& r) { r.srcMemory = 511; }), "there is no memory 511");
  both(with([](auto& r) { r.semaphore = 1; }), "there is no semaphore 1; 1 have been added");
  both(with([](auto& r) { r.size = 65; }), "leave the destination memory of 64 bytes");
  both(with([](auto& r) { r.srcOffset = 56; }), "leave the source memory");
  both(with([](auto& r) { r.dstOffset = 0xffffffff; }),
       "trigger 0 of FIFO 0 (put, semaphore 0, 16 bytes from memory 1 + 0 to memory 0 + 4294967295): ");
  both(PortRequest{TriggerFlag, 0, 0, 0, 0, 0, 9}, "trigger 0 of FIFO 0 (signal, semaphore 9)");
  const auto large = with([](auto& r) { r.size = std::uint64_t{1} << 32; });
  CHECK(contains(complaintAbout<ProxyTrigger>(large), "the size, 4294967296, does not fit the 16-byte trigger"));
  CHECK(contains(complaintAbout<WideTrigger>(large), "4294967296 bytes from memory 1"));
  const auto many = with([](auto& r) { r.srcMemory = 512; });
  CHECK(contains(complaintAbout<ProxyTrigger>(many), "number of the source memory, 512, does not fit"));
  CHECK(contains(complaintAbout<WideTrigger>(many), "there is no memory 512"));
  const auto overflowing = with([](auto& r) { r.dstOffset = ~std::uint64_t{0}; });
  CHECK(contains(complaintAbout<WideTrigger>(overflowing), "leave the destination memory"));
  const auto unlessRefused = [](const char* part) {
    return AllIBTransports.has(portTransport()) ? "do not write values" : part;
  };
  both(PortRequest{TriggerValue, 0, 60, 0, 0, 5, 0}, unlessRefused("leave the destination memory of 64 bytes"));
  both(PortRequest{TriggerValue, 0, 4, 0, 0, 5, 0}, unlessRefused("aligned to 8 bytes"));
  both(PortRequest{TriggerValue | TriggerFlag, 7, 0, 0, 0, 5, 0},
       "(put of a value + signal, semaphore 0, to memory 7 + 0): there is no memory 7");
}

TEST_CASE("port channel: numbers of memories and semaphores, beyond the compact trigger's too") {
  usePortDevice();
  Communicator communicator(lonelyBootstrap());
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

TEST_CASE("port channel: service and channels come and go in any order") {
  usePortDevice();
  Communicator communicator(lonelyBootstrap());
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
    end->service.stopProxy();  // the request is done when it returns
    CHECK(end->target.read()[0] == static_cast<std::uint64_t>(round) + 1);
    if (round == 2) channel = {};
    end.reset();
    if (round != 2) channel.deviceHandle();  // what it holds is still there
  }
}

/// A flush of a proxy with a handler of one's own: it waits until the handler has returned.
TEST_CASE("port channel: over a proxy with a handler of one's own") {
  usePortDevice();
  Communicator communicator(lonelyBootstrap());
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

inline void playBothPingPongs(std::shared_ptr<Bootstrap> bootstrap) {
  playPortPingPong<ProxyTrigger>(bootstrap);
  playPortPingPong<WideTrigger>(bootstrap);
}

TEST_CASE("port channel: data arrives before the signal, ranks as threads") {
  runAsThreads(2, playBothPingPongs);
}
TEST_CASE("port channel: data arrives before the signal, ranks as processes") {
  runAsProcesses(2, "one process plays over a port channel");
}
TEST_CASE("one process plays over a port channel" * doctest::skip()) {
  playBothPingPongs(bootstrapOfProcess());
}

TEST_CASE("port channel: a flush frees the source, ranks as threads") {
  runAsThreads(2, flushFromManyChannels);
}
TEST_CASE("port channel: a flush frees the source, ranks as processes") {
  runAsProcesses(2, "one process flushes many channels");
}
TEST_CASE("one process flushes many channels" * doctest::skip()) {
  flushFromManyChannels(bootstrapOfProcess());
}

TEST_CASE("port channel: a put by each lane of a warp") {
  runAsThreads(2, putFromEachLane);
}

}  // namespace mscclpp::test
