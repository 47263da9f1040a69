// Pieces that warps give to the publisher of their block: each is published once, after its data and in order.
#include "mscclpp/collective/piece_publisher.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "mscclpp/emulation/launch.hpp"

using namespace mscclpp;

namespace {

constexpr int lanes = 4;

/// What the warps have stored, and what has been published of it. Not atomic: the publisher must order the accesses.
struct Data {
  std::vector<std::uint32_t> stored, published;
  std::vector<int> publishers;  ///< of each warp's pieces, the warp that published them last
};

/// Publishes into Data. The row of a piece is its number among those of a warp, which is its destination.
template <class GridType>
struct FakeSession {
  static constexpr int width = lanes;
  const GridType& grid;
  Data& data;
  std::uint32_t pieces;
  int slowness;

  auto warp() const { return grid.warp(); }
  void publishEach(const RowPiece& piece) const {
    if (grid.warp().rank() == 0) std::this_thread::sleep_for(std::chrono::microseconds(slowness));
    if (piece.to >= 0) publishOne(piece.to, piece.row);
  }
  void publish(const RowPiece& piece) const {
    grid.warp().sync();
    if (grid.warp().rank() == 0) publishOne(piece.to, piece.row);
  }

 private:
  void publishOne(int to, std::uint32_t row) const {
    const std::size_t piece = static_cast<std::size_t>(to) * pieces + row;
    for (std::size_t lane = 0; lane < lanes; ++lane) data.published[piece] += data.stored[piece * lanes + lane];
    data.publishers[static_cast<std::size_t>(to)] = grid.warpIndex();
  }
};

/// Runs a block whose warps send so many pieces each, the w-th one w fewer, and checks what is published.
void check(int warps, std::uint32_t pieces, bool sharesMemory, int slowness) {
  CAPTURE(warps);
  CAPTURE(pieces);
  CAPTURE(sharesMemory);
  const auto all = static_cast<std::size_t>(warps) * pieces;
  Data data{std::vector<std::uint32_t>(all * lanes), std::vector<std::uint32_t>(all),
            std::vector<int>(static_cast<std::size_t>(warps), -1)};
  PublisherWords words;
  const auto of = [&](int warp) {
    const auto fewer = static_cast<std::uint32_t>(warp);
    return pieces > fewer ? pieces - fewer : 0;
  };
  emulation::launch<lanes>({.threads = lanes * warps}, [&](int, const auto& grid) {
    const FakeSession<std::decay_t<decltype(grid)>> session{grid, data, pieces, slowness};
    words.clear(grid.block());
    grid.block().sync();
    PiecePublisher publisher(session, sharesMemory ? &words : nullptr, grid.warpIndex(), warps);
    if (publisher.isPublisher()) return publisher.run();
    for (std::uint32_t n = 0; n < of(grid.warpIndex()); ++n) {
      const std::size_t piece = static_cast<std::size_t>(grid.warpIndex()) * pieces + n;
      data.stored[piece * lanes + static_cast<std::size_t>(grid.warp().rank())] = 1;
      publisher.publish({grid.warpIndex(), n, 0});
    }
    publisher.end();
  });
  const bool hasPublisher = sharesMemory && warps > 1 && warps - 1 <= lanes;
  for (int warp = 0; warp < warps - (hasPublisher ? 1 : 0); ++warp) {
    for (std::uint32_t n = 0; n < pieces; ++n) {
      CHECK(data.published[static_cast<std::size_t>(warp) * pieces + n] == (n < of(warp) ? lanes : 0));
    }
    if (of(warp) > 0) CHECK(data.publishers[static_cast<std::size_t>(warp)] == (hasPublisher ? warps - 1 : warp));
  }
}

}  // namespace

TEST_CASE("piece publisher: one warp publishes the pieces of all others") {
  for (const int warps : {2, 3, 5}) {
    for (const std::uint32_t pieces : {1u, 3u, 20u}) check(warps, pieces, true, 0);
  }
}
TEST_CASE("piece publisher: slower than those that send") {
  check(4, 30, true, 500);
}
TEST_CASE("piece publisher: without one, each warp publishes its own pieces") {
  check(1, 5, true, 0);
  check(6, 5, true, 0);  // more to send than a warp has lanes
  check(3, 5, false, 0);
}
