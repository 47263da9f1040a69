// Cases of all pack protocols: for any data, epoch and number of packs, a rank reads what the other wrote.
#pragma once

#include <doctest/doctest.h>

#include "exchange.hpp"
#include "mscclpp/packet/ll128.hpp"
#include "mscclpp/packet/packet_rows.hpp"
#include "mscclpp/packet/sentinel.hpp"
#include "tests/backend/backend.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

template <class P, int Width>
void checkExchange(std::size_t packs, int calls, std::uint64_t firstEpoch) {
  Backend<Width> backend;
  const std::size_t total = packs * static_cast<std::size_t>(calls);
  auto slots = backend.allocate(2, 2 * P::bytes(packs), P::initialByte);
  auto inputs = backend.allocate(2, total * sizeof(Word128), 0);
  auto outputs = backend.allocate(2, total * sizeof(Word128), poisonByte);
  std::vector<Word128> data[2];
  for (int rank = 0; rank < 2; ++rank) {
    data[rank] = packsWithEmptySlotPatterns(total, static_cast<unsigned>(rank + 1), P::initialByte);
    inputs.write(rank, data[rank]);
  }
  backend.launch({2, 1, Width > 8 ? 1 : 2}, ExchangeBody<P>{slots.window(), inputs.window(), outputs.window(), packs,
                                                            calls, firstEpoch, backend.wait()});
  INFO(packs << " packs, " << calls << " calls from epoch " << firstEpoch);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(firstDifference(outputs.template read<Word128>(rank), data[1 - rank]) == -1);
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
TEST_CASE("sentinel: payloads equal to the empty-slot pattern included") {
  checkProtocol<Sentinel, 4>(300);
}
TEST_CASE("ll128: ordered lines") {
  checkProtocol<LL128<LineStore::Ordered>, 16>(20);
}

}  // namespace mscclpp::test
