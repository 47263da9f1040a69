// Cases of all pack protocols: whatever the data, the epoch and the number of packs, what one rank writes is what the other reads.
#pragma once

#include <doctest/doctest.h>

#include "backend/backend.hpp"
#include "backend/data.hpp"
#include "mscclpp/packet/ll128.hpp"
#include "mscclpp/packet/packet_rows.hpp"
#include "mscclpp/packet/sentinel.hpp"
#include "packet/exchange.hpp"

namespace mscclpp::test {

template <class P, int Width>
void checkExchange(std::size_t packs, int calls, std::uint64_t firstEpoch) {
  Backend<Width> backend;
  const std::size_t total = packs * static_cast<std::size_t>(calls);
  auto slots = backend.allocate(2, 2 * P::bytes(packs), P::initialByte);
  auto inputs = backend.allocate(2, total * sizeof(Word16), 0);
  auto outputs = backend.allocate(2, total * sizeof(Word16), poisonByte);
  std::vector<Word16> data[2];
  for (int rank = 0; rank < 2; ++rank) {
    data[rank] = packsWithEmptyLookalikes(total, static_cast<unsigned>(rank + 1), P::initialByte);
    inputs.write(rank, data[rank]);
  }
  backend.launch({2, 1, Width > 8 ? 1 : 2}, ExchangeBody<P>{slots.window(), inputs.window(), outputs.window(), packs,
                                                            calls, firstEpoch, backend.wait()});
  INFO(packs << " packs, " << calls << " calls from epoch " << firstEpoch);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(firstDifference(outputs.template read<Word16>(rank), data[1 - rank]) == -1);
  }
}

template <class P, int Width>
void checkProtocol(int manyCalls) {
  for (std::size_t packs : {1, 2, 15, 16, 31, 33, 100}) checkExchange<P, Width>(packs, 3, 1);
  checkExchange<P, Width>(7, manyCalls, 1);
  checkExchange<P, Width>(5, 8, 0xfffffffdu);
  checkExchange<P, Width>(5, 8, 0x5fffffffeu);
}

TEST_CASE("packet_rows: LL8") {
  checkProtocol<PacketRows<LL8Packet>, 4>(300);
}
TEST_CASE("packet_rows: LL16") {
  checkProtocol<PacketRows<LL16Packet>, 4>(300);
}
TEST_CASE("packet_rows: warps of one lane") {
  checkProtocol<PacketRows<LL16Packet>, 1>(300);
}
TEST_CASE("sentinel: payloads that look like an empty slot included") {
  checkProtocol<Sentinel, 4>(300);
}
TEST_CASE("ll128: ordered lines") {
  checkProtocol<LL128<LineStore::Ordered>, 16>(20);
}

}  // namespace mscclpp::test
