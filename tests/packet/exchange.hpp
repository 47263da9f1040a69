// An exchange of packs between two ranks, for the cases of the pack protocols and their mutants.
#pragma once

#include <random>
#include <vector>

#include "mscclpp/basic/wait.hpp"
#include "mscclpp/sync/window.hpp"
#include "tests/backend/test_data.hpp"

namespace mscclpp::test {

/// Two ranks exchange `packs` packs in each of `calls` calls, through double-buffered slots, as the collectives do. A
/// rank that writes call k has read the peer's call k - 1, so the peer has completed call k - 2: the half is free.
template <class P>
struct ExchangeBody {
  Window<> slots;    // two halves
  Window<> inputs;   // calls x packs
  Window<> outputs;  // the same
  std::size_t packs;
  int calls;
  std::uint64_t firstEpoch;
  BoundedWait policy;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    const auto warp = grid.warp();
    auto wait = policy;
    std::uint64_t epoch = firstEpoch;
    for (int call = 0; call < calls; ++call) {
      const std::size_t half = (epoch & 1) * P::bytes(packs);
      const auto* in = reinterpret_cast<const Word128*>(inputs.at(rank)) + call * packs;
      auto* out = reinterpret_cast<Word128*>(outputs.at(rank)) + call * packs;
      exchange(warp, grid.warpIndex(), grid.warpCount(), slots.at(1 - rank, half), slots.at(rank, half), in, out, epoch,
               wait, rank);
      epoch = P::nextEpoch(epoch);
    }
  }

 private:
  template <class Warp>
  MSCCLPP_HOST_DEVICE void exchange(const Warp& warp, int firstRow, int rowStep, std::byte* outgoing,
                                    std::byte* incoming, const Word128* in, Word128* out, std::uint64_t epoch,
                                    BoundedWait& wait, int rank) const {
    const auto perRow = static_cast<std::size_t>(P::packsPerRow(Warp::width));
    const auto lane = static_cast<std::size_t>(warp.rank());
    for (std::size_t row = firstRow; row * perRow < packs; row += rowStep) {
      const std::size_t pack = row * perRow + lane;
      const bool active = lane < perRow && pack < packs;
      if (!P::needsFullWarp && !active) continue;
      P::write(warp, outgoing, row, P::encode(warp, active ? in[pack] : Word128{0, 0}), epoch);
      typename P::Fetched fetched{};
      [[maybe_unused]] unsigned tries = 0;
      const auto attempt = [&](std::uint64_t& seen) {
        fetched = P::fetch(warp, incoming, row, epoch);
        bool complete = P::arrived(warp, incoming, row, fetched, epoch);
        if constexpr (requires { P::attemptsPerEscapeCheck; }) {
          if (!complete && ++tries % P::attemptsPerEscapeCheck == 0)
            complete = P::arrivedEscaped(warp, incoming, row, fetched, epoch);
        }
        seen = complete ? epoch : 0;
        return complete;
      };
      const WaitSite site{WaitOperation::Packet, rank, 1 - rank, 0, epoch};
      P::needsFullWarp ? wait.untilCollective(warp, site, attempt) : wait.until(site, attempt);
      const Word128 result = P::decode(warp, P::received(warp, fetched));
      P::resetSlot(warp, incoming, row);
      if (active) out[pack] = result;
    }
  }
};

/// Random packs; in one of four, one half or both equal the pattern of an empty slot.
inline std::vector<Word128> packsWithEmptySlotPatterns(std::size_t count, unsigned seed, int emptyByte) {
  auto packs = randomBits<Word128>(count, seed);
  const std::uint64_t emptyPattern = 0x0101010101010101u * static_cast<unsigned>(emptyByte);
  std::mt19937 random(seed);
  for (auto& pack : packs) {
    const auto which = random() % 16;
    if (which == 1 || which == 3) pack.lo = emptyPattern;
    if (which == 2 || which == 3) pack.hi = emptyPattern;
  }
  return packs;
}

}  // namespace mscclpp::test
