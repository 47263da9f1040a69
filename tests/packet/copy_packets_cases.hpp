// Cases of packet/copy_packets.hpp: any number of bytes at any alignment; no other byte changes.
#pragma once

#include <doctest/doctest.h>

#include "mscclpp/packet/copy_packets.hpp"
#include "mscclpp/packet/ll8.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

/// Rank 0 sends, rank 1 receives, one message of each size from 0 to `sizes - 1`, all through the same packets.
template <class PacketType>
struct CopyPacketsBody {
  Window<> packets;  // a message for each size
  Window<> src;
  Window<> dst;  // a strip for each size
  std::size_t offset;
  std::size_t sizes;
  std::size_t strip;
  BoundedWait policy;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    auto wait = policy;
    for (std::size_t size = 0; size < sizes; ++size) {
      std::byte* slots = packets.at(1, size * 4 * strip);
      const auto flag = static_cast<std::uint32_t>(size + 1);
      if (rank == 0) {
        copyToPackets<PacketType>(grid.block(), slots, src.at(0, offset), size, flag);
      } else {
        copyFromPackets<PacketType>(grid.block(), dst.at(1, size * strip + offset), slots, size, flag, wait, 1, 0);
      }
    }
  }
};

template <class PacketType>
void checkCopyPackets() {
  constexpr std::size_t sizes = 120;
  constexpr std::size_t strip = 136;
  Backend<> backend;
  auto src = backend.allocate(2, strip, 0);
  const auto data = randomBits<std::byte>(strip, 9);
  src.write(0, data);
  for (std::size_t offset = 0; offset < 9; ++offset) {
    auto packets = backend.allocate(2, sizes * strip * 4, 0);
    auto dst = backend.allocate(2, sizes * strip, poisonByte);
    backend.launch({2, 1, 1}, CopyPacketsBody<PacketType>{packets.window(), src.window(), dst.window(), offset, sizes,
                                                          strip, backend.wait()});
    std::vector<std::byte> expected(sizes * strip, std::byte{poisonByte});
    for (std::size_t size = 0; size < sizes; ++size)
      std::memcpy(expected.data() + size * strip + offset, data.data() + offset, size);
    CHECK(firstDifference(dst.read(1), expected) == -1);
  }
}

TEST_CASE("copy_packets: LL16") {
  checkCopyPackets<LL16Packet>();
}
TEST_CASE("copy_packets: LL8") {
  checkCopyPackets<LL8Packet>();
}

/// Rank 1 expects a flag that rank 0 does not send.
struct WrongFlagBody {
  Window<> memory;
  BoundedWait policy;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    auto wait = policy;
    if (rank == 0) copyToPackets(grid.block(), memory.at(1), memory.at(0), 24, 3);
    if (rank == 1) copyFromPackets(grid.block(), memory.at(1, 256), memory.at(1), 24, 4, wait, 1, 0);
  }
};

TEST_CASE("copy_packets: a packet with a wrong flag is not received, and the record shows it") {
  Backend<> backend;
  auto memory = backend.allocate(2, 512, 0);
  const auto record = backend.run({2, 1, 1}, WrongFlagBody{memory.window(), backend.wait(20'000'000)});
  REQUIRE(record);
  CHECK(record->operation == WaitOperation::Packet);
  CHECK(record->rank == 1);
  CHECK(record->peer == 0);
  CHECK(record->expected == 4);
}

}  // namespace mscclpp::test
