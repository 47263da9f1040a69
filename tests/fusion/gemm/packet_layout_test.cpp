// Which rank and slot each pack of a GEMM that is reduced in packets has.
#include "mscclpp/fusion/gemm/packet_layout.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <string>
#include <tuple>

#include "mscclpp/basic/element.hpp"
#include "mscclpp/fusion/gemm/gemm_packet_reduce.hpp"

using namespace mscclpp;

namespace {

constexpr GemmShape evenTile{.rows = 16, .columns = 64};
constexpr GemmShape oddTile{.rows = 16, .columns = 48};  // 6 packs in a row: a row of slots has parts of rows

/// The first wrong slot of a call; empty: each pack has its own, within those of the longest call.
template <RowDelivery delivery, GemmShape tile, int outputs>
std::string wrongSlot(std::size_t rows, std::size_t width, int ranks, std::size_t hopBytes, std::size_t most) {
  using Layout = PacketLayout<bf16, delivery, tile, outputs>;
  const std::size_t strips = ceilDivide(width, Layout::columns);
  const Layout layout(rows, strips, ranks, hopBytes);
  const std::size_t slice = ceilDivide(rows, static_cast<std::size_t>(ranks));
  std::set<std::tuple<int, std::uint32_t, std::size_t>> used;
  for (std::size_t strip = 0; strip < strips; ++strip) {
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t pack = 0; pack < Layout::rowPacks; ++pack) {
        const std::size_t tileRow = row % static_cast<std::size_t>(tile.rows);
        const std::size_t inTile = tileRow * Layout::rowPacks + pack;
        const auto slot =
            layout.slot({row / static_cast<std::size_t>(tile.rows), strip}, static_cast<std::uint32_t>(inTile));
        const std::string where = "strip " + std::to_string(strip) + ", row " + std::to_string(row) + ", pack " +
                                  std::to_string(pack) + ": row " + std::to_string(slot.row) + " of part " +
                                  std::to_string(slot.part);
        const std::size_t parts = layout.takesOneHop() ? Layout::arrays : static_cast<std::size_t>(ranks);
        if (slot.part < 0 || static_cast<std::size_t>(slot.part) >= parts) return where + ", no such part";
        if (delivery == RowDelivery::ToOwner && static_cast<std::size_t>(slot.part) != row / slice) {
          return where + ", not the owner of the row";
        }
        if (slot.row >= layout.slotRows() || !layout.fits(most * Layout::lanes)) {
          return where + ", outside of the scratch";
        }
        if (!used.insert({slot.part, slot.row, inTile % Layout::lanes}).second) return where + ", used twice";
      }
    }
  }
  return "";
}

template <RowDelivery delivery, GemmShape tile, int outputs>
void checkSlots() {
  using Layout = PacketLayout<bf16, delivery, tile, outputs>;
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (const std::size_t hopBytes : {std::size_t{0}, std::size_t{4000}, std::size_t{1} << 40}) {
      for (const std::size_t longest : {9, 50}) {
        const std::size_t most = Layout::mostSlotRows(longest, 300, ranks, hopBytes);
        for (const std::size_t rows : {1, 2, 7, 9, 16, 17, 33, 50}) {
          for (const std::size_t width : {1, 64, 65, 300}) {
            if (rows > longest) continue;
            CAPTURE(ranks);
            CAPTURE(hopBytes);
            CAPTURE(longest);
            CAPTURE(rows);
            CAPTURE(width);
            CHECK(wrongSlot<delivery, tile, outputs>(rows, width, ranks, hopBytes, most) == "");
          }
        }
      }
    }
  }
}

template <RowDelivery delivery>
double mebibytes(std::size_t rows, std::size_t width, int ranks) {
  using C = GemmPacketReduce<bf16, GemmPacketReduceConfig{.delivery = delivery, .tile = {.rows = 128, .columns = 64}}>;
  return static_cast<double>(C::scratchFor(rows, width, ranks).windowBytes()) / (1 << 20);
}

}  // namespace

TEST_CASE("packets of a GEMM: each pack has a slot of its own at its owner, in calls of any size up to the longest") {
  checkSlots<RowDelivery::Redundant, evenTile, 2>();
  checkSlots<RowDelivery::ToAll, evenTile, 2>();
  checkSlots<RowDelivery::ToAll, oddTile, 2>();
  checkSlots<RowDelivery::ToOwner, evenTile, 2>();
  checkSlots<RowDelivery::ToOwner, evenTile, 1>();
  checkSlots<RowDelivery::ToOwner, oddTile, 2>();
}
TEST_CASE("packets of a GEMM: a rank has slots for what it reduces") {
  using enum RowDelivery;
  // Slots of 24 bytes for packs of 8 elements: of 128 rows of 16384 columns 6 MiB for each sender and set.
  CHECK(mebibytes<Redundant>(128, 16384, 8) == doctest::Approx(6.0 * 7 * 2).epsilon(0.01));
  CHECK(mebibytes<ToAll>(128, 16384, 8) == doctest::Approx(6.0 / 8 * 7 * 2 * 2).epsilon(0.01));
  CHECK(mebibytes<ToOwner>(128, 16384, 8) == doctest::Approx(6.0 / 8 * 7 * 4).epsilon(0.01));
  CHECK(mebibytes<ToAll>(128, 16384, 2) == doctest::Approx(6.0 * 2).epsilon(0.01));
}
TEST_CASE("packets of a GEMM: one hop as long as the bytes that it adds take no longer than the second") {
  constexpr std::size_t hopBytes = 560'000, rowBytes = 8192 * 2;
  CHECK(mostOneHopBytes(hopBytes, 3) / rowBytes == 51);
  CHECK(mostOneHopBytes(hopBytes, 4) / rowBytes == 22);
  CHECK(mostOneHopBytes(hopBytes, 8) / rowBytes == 6);
  for (const int ranks : {3, 4, 7, 8}) {
    CAPTURE(ranks);
    CHECK(isOneHopFaster(mostOneHopBytes(hopBytes, ranks), hopBytes, ranks));
    CHECK_FALSE(isOneHopFaster(mostOneHopBytes(hopBytes, ranks) + 1, hopBytes, ranks));
  }
  for (const int ranks : {1, 2}) CHECK(isOneHopFaster(std::size_t{1} << 50, hopBytes, ranks));
  using Layout = PacketLayout<bf16, RowDelivery::ToAll, evenTile, 2>;
  CHECK(Layout(6, 8192 / 64, 8, hopBytes).takesOneHop());
  CHECK_FALSE(Layout(7, 8192 / 64, 8, hopBytes).takesOneHop());
  CHECK(Layout(128, 8192 / 64, 2, hopBytes).takesOneHop());
}
TEST_CASE("packets of a GEMM: a call that is longer than the scratch does not fit") {
  using Layout = PacketLayout<bf16, RowDelivery::ToOwner, evenTile, 2>;
  const std::size_t most = Layout::mostSlotRows(40, 300, 5, 0) * Layout::lanes;
  CHECK(Layout(40, 5, 5, 0).fits(most));
  CHECK_FALSE(Layout(40, 6, 5, 0).fits(most));
  CHECK_FALSE(Layout(41, 5, 5, 0).fits(most));
}
