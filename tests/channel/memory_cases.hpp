// Cases of channel/memory.hpp: every operation, with a group and as MSCCL++-compatible overload.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>

#include "mscclpp/channel/memory.hpp"
#include "mscclpp/packet/ll8.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

/// The layout of a rank's memory in these tests: offsets into a buffer.
struct ChannelLayout {
  static constexpr std::size_t tokens = 0;
  static constexpr std::size_t source = 256;
  static constexpr std::size_t target = 4096;  ///< written by the peer
  static constexpr std::size_t packets = 8192;
  static constexpr std::size_t results = 24576;
  static constexpr std::size_t bytes = 32768;
};

/// The channel of `rank` with the other of two ranks, from its source to the peer's target.
inline MSCCLPP_HOST_DEVICE MemoryChannelHandle channelOf(const Window<>& memory, int rank, WaitControl* control) {
  using L = ChannelLayout;
  MemoryChannelHandle channel;
  auto& semaphore = channel.semaphore_;
  semaphore.inboundToken = reinterpret_cast<std::uint64_t*>(memory.at(rank, L::tokens));
  semaphore.remoteInboundToken = reinterpret_cast<std::uint64_t*>(memory.at(1 - rank, L::tokens));
  semaphore.expectedInboundToken = reinterpret_cast<std::uint64_t*>(memory.at(rank, L::tokens + 8));
  semaphore.waitControl = control;
  semaphore.waitTimeout = waitTimeout;
  semaphore.rank = rank;
  semaphore.peer = 1 - rank;
  channel.dst_ = memory.at(1 - rank, L::target);
  channel.src_ = memory.at(rank, L::source);
  channel.packetBuffer_ = memory.at(rank, L::packets);
  return channel;
}

/// Runs Body on two ranks and compares rank 0's memory with what `expect` makes of it. Each rank's source is random,
/// the rest of its memory poisoned.
template <class Body>
void checkChannel(void (*expect)(std::vector<std::byte>& own, const std::vector<std::byte>& other)) {
  using L = ChannelLayout;
  Backend<> backend;
  auto memory = backend.allocate(2, L::bytes, poisonByte);
  std::vector<std::byte> before[2];
  for (int rank = 0; rank < 2; ++rank) {
    memory.write(rank, std::vector<std::byte>(L::source, std::byte{0}), L::tokens);
    memory.write(rank, randomBits<std::byte>(1024, static_cast<unsigned>(rank)), L::source);
    memory.write(rank, std::vector<std::byte>(L::results - L::packets, std::byte{0}), L::packets);
    before[rank] = memory.read(rank);
  }
  backend.launch({2, 1, 2}, Body{memory.window(), backend.control()});
  for (int rank = 0; rank < 2; ++rank) {
    auto expected = before[rank];
    expect(expected, before[1 - rank]);
    auto after = memory.read(rank);
    // The semaphore and packet tests check tokens and packets.
    std::fill(after.begin(), after.begin() + L::source, std::byte{0});
    std::copy(expected.begin() + L::packets, expected.begin() + L::results, after.begin() + L::packets);
    CHECK(firstDifference(after, expected) == -1);
  }
}

/// Both ranks put several chunks to the peer, signal, and wait for the peer's signal.
struct PutBody {
  Window<> memory;
  WaitControl* control;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    auto channel = channelOf(memory, rank, control);
    const auto block = grid.block();
    const auto thread = static_cast<std::uint32_t>(block.rank());
    const auto threads = static_cast<std::uint32_t>(block.size());
    channel.put(block, 1, 0, 100);   // with a group
    channel.put(block, 300, 17, 0);  // zero bytes
    if (grid.warpIndex() == 1) channel.put(grid.warp(), 512, 256, 64);
    channel.put(1000, 100, 333, thread, threads);  // MSCCL++-compatible overload
    channel.put(700, 33, thread, threads);         // the same offset on both sides
    block.sync();
    if (thread == 0) {
      channel.signal();
      channel.wait();
    }
    block.sync();
    // Now the data that the peer put may be read.
    if (thread == 0) *memory.at(rank, ChannelLayout::results) = *memory.at(rank, ChannelLayout::target + 1);
  }
};

TEST_CASE("memory_channel: put, signal, wait") {
  checkChannel<PutBody>([](std::vector<std::byte>& own, const std::vector<std::byte>& other) {
    using L = ChannelLayout;
    const auto copy = [&](std::size_t to, std::size_t from, std::size_t bytes) {
      std::copy_n(other.begin() + L::source + from, bytes, own.begin() + L::target + to);
    };
    copy(1, 0, 100);
    copy(512, 256, 64);
    copy(1000, 100, 333);
    copy(700, 700, 33);
    own[L::results] = other[L::source];
  });
}

/// Both ranks fill their target and get from the peer's target into their source.
struct GetBody {
  Window<> memory;
  WaitControl* control;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    auto channel = channelOf(memory, rank, control);
    const auto block = grid.block();
    const auto thread = static_cast<std::uint32_t>(block.rank());
    const auto threads = static_cast<std::uint32_t>(block.size());
    for (int i = block.rank(); i < 1024; i += block.size())
      *memory.at(rank, ChannelLayout::target + i) = *memory.at(rank, ChannelLayout::source + i);
    block.sync();
    if (thread == 0) {
      channel.relaxedSignal();  // synchronisation without data, in addition to the ordered pair
      channel.relaxedWait();
      channel.signal();
      channel.wait();
    }
    block.sync();
    channel.get(block, 5, 100, 50);
    channel.get(600, 300, 77, thread, threads);
    channel.get(800, 9, thread, threads);
  }
};

TEST_CASE("memory_channel: get") {
  checkChannel<GetBody>([](std::vector<std::byte>& own, const std::vector<std::byte>& other) {
    using L = ChannelLayout;
    std::copy_n(own.begin() + L::source, 1024, own.begin() + L::target);
    const auto copy = [&](std::size_t from, std::size_t to, std::size_t bytes) {
      std::copy_n(other.begin() + L::source + from, bytes, own.begin() + L::source + to);
    };
    copy(5, 100, 50);
    copy(600, 300, 77);
    copy(800, 800, 9);
  });
}

/// Each rank writes elements to the peer and reads them back.
struct ReadWriteBody {
  Window<> memory;
  WaitControl* control;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    if (grid.block().rank() != 0) return;
    auto channel = channelOf(memory, rank, control);
    channel.write<std::uint32_t>(3, 0x01020304u);
    channel.write<std::uint64_t>(4, 0x0102030405060708u);
    auto* results = reinterpret_cast<std::uint32_t*>(memory.at(rank, ChannelLayout::results));
    results[0] = channel.read<std::uint32_t>(3);
    results[1] = static_cast<std::uint32_t>(channel.read<std::uint64_t>(4));
    channel.signal();
    const auto start = arch::nanoseconds();
    bool signalled = false;
    while (!signalled && arch::nanoseconds() - start < waitTimeout) signalled = channel.poll();
    results[3] = signalled;
  }
};

TEST_CASE("memory_channel: read, write, poll") {
  checkChannel<ReadWriteBody>([](std::vector<std::byte>& own, const std::vector<std::byte>&) {
    using L = ChannelLayout;
    const std::uint32_t small = 0x01020304u;
    const std::uint64_t large = 0x0102030405060708u;
    std::memcpy(&own[L::target + 12], &small, 4);
    std::memcpy(&own[L::target + 32], &large, 8);
    std::memcpy(&own[L::results], &small, 4);
    std::memcpy(&own[L::results + 4], &large, 4);
    const std::uint32_t signalled = 1;
    std::memcpy(&own[L::results + 12], &signalled, 4);
  });
}

/// Both ranks send packets to the peer's packet buffer and unpack those that they receive.
template <class PacketType>
struct PacketsBody {
  Window<> memory;
  WaitControl* control;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    auto channel = channelOf(memory, rank, control);
    channel.dst_ = memory.at(1 - rank, ChannelLayout::packets);
    auto unpacking = channel;
    unpacking.src_ = memory.at(rank, ChannelLayout::target);
    const auto block = grid.block();
    const auto thread = static_cast<std::uint32_t>(block.rank());
    const auto threads = static_cast<std::uint32_t>(block.size());
    channel.template putPackets<PacketType>(block, 0, 8, 101, 1);
    unpacking.template unpackPackets<PacketType>(block, 0, 3, 101, 1);
    channel.template putPackets<PacketType>(1024, 256, 64, thread, threads, 2);
    unpacking.template unpackPackets<PacketType>(1024, 128, 64, thread, threads, 2);
    channel.template putPackets<PacketType>(512, 40, thread, threads, 3);
    unpacking.template unpackPackets<PacketType>(512, 40, thread, threads, 3);
    if (thread != 0) return;
    using Payload = typename PacketType::Payload;
    const Payload payload = unpacking.template unpackPacket<PacketType>(1024 / sizeof(PacketType) + 1, 2);
    *reinterpret_cast<Payload*>(memory.at(rank, ChannelLayout::results)) = payload;
  }
};

template <class PacketType>
void expectPackets(std::vector<std::byte>& own, const std::vector<std::byte>& other) {
  using L = ChannelLayout;
  const auto copy = [&](std::size_t to, std::size_t from, std::size_t bytes) {
    std::copy_n(other.begin() + L::source + from, bytes, own.begin() + L::target + to);
  };
  copy(3, 8, 101);
  copy(128, 256, 64);
  copy(512, 512, 40);
  constexpr std::size_t size = sizeof(typename PacketType::Payload);
  std::copy_n(other.begin() + L::source + 256 + size, size, own.begin() + L::results);
}

TEST_CASE("memory_channel: packets") {
  checkChannel<PacketsBody<LL16Packet>>(expectPackets<LL16Packet>);
  checkChannel<PacketsBody<LL8Packet>>(expectPackets<LL8Packet>);
}

/// Rank 0 waits for packets with a flag that is never sent.
struct MissingPacketBody {
  Window<> memory;
  WaitControl* control;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    if (rank == 1 || grid.block().rank() != 0) return;
    auto channel = channelOf(memory, rank, control);
    channel.semaphore_.waitTimeout = 30'000'000;
    const bool arrived = channel.unpackPackets(ThisThread(), 0, 0, 8, 9);
    *reinterpret_cast<std::uint32_t*>(memory.at(rank, ChannelLayout::results)) = arrived;
  }
};

TEST_CASE("memory_channel: a wait for missing packets leaves a record") {
  Backend<> backend;
  auto memory = backend.allocate(2, ChannelLayout::bytes, 0);
  const auto record = backend.run({2, 1, 1}, MissingPacketBody{memory.window(), backend.control()});
  REQUIRE(record);
  CHECK(record->operation == WaitOperation::Packet);
  CHECK(record->rank == 0);
  CHECK(record->peer == 1);
  CHECK(record->expected == 9);
}

}  // namespace mscclpp::test
