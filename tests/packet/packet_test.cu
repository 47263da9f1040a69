// The cases of packet/ on GPUs, and litmus tests of what LL128 and Sentinel take from the hardware.
#include "packet/copy_packets_cases.hpp"
#include "packet/protocol_cases.hpp"

namespace mscclpp::test {

TEST_CASE("ll128: whole lines") {
  checkProtocol<LL128<LineStore::Whole>, 32>(300);
}

/// What a litmus test saw.
struct Sightings {
  std::uint64_t reads;     ///< how many lines or words the reader looked at
  std::uint64_t versions;  ///< how often one was newer than at the look before
  std::uint64_t broken;    ///< how many were not of one piece
};

constexpr std::uint64_t litmusNanoseconds = 2'000'000'000;
constexpr int litmusRows = 16;

/// Rank 0 writes ever newer versions of a few rows of LL128 lines to rank 1, never waiting; every word of a line holds its version. Rank 1 reads them: a word
/// may be newer than the flag of its line, since the reader's lanes may read at different times, but never older.
struct WholeLineLitmusBody {
  Window<> lines;
  Window<> sightings;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    using P = LL128<LineStore::Whole>;
    const auto warp = grid.warp();
    const auto end = arch::nanoseconds() + litmusNanoseconds;
    Sightings own{};
    std::uint64_t last[litmusRows] = {};
    for (std::uint64_t version = 1; warp.all(arch::nanoseconds() < end); ++version) {
      for (int row = 0; row < litmusRows; ++row) {
        const std::size_t at = static_cast<std::size_t>(grid.warpIndex() * litmusRows + row);
        if (rank == 0) {
          P::write(warp, lines.at(1), at, P::encode(warp, Word16{version, version}), version);
          continue;
        }
        const Word16 stored = P::fetch(warp, lines.at(1), at, 0).stored;
        const int flagLane = warp.rank() / 8 * 8 + 7;
        const std::uint64_t flag = static_cast<std::uint64_t>(warp.shuffle(stored.hi >> 32, flagLane)) << 32 |
                                   warp.shuffle(static_cast<std::uint32_t>(stored.hi), flagLane);
        if (!warp.all(stored.lo >= flag && stored.hi >= flag)) ++own.broken;
        if (flag != last[row]) ++own.versions;
        last[row] = flag;
        ++own.reads;
      }
    }
    if (rank == 1) reinterpret_cast<Sightings*>(sightings.at(1))[grid.block().rank()] = own;
  }
};

/// Each lane of rank 0 writes ever newer versions of a 16-byte word to rank 1; both halves hold the version. Rank 1 must never see two versions in one word.
struct WholeWordLitmusBody {
  Window<> words;
  Window<> sightings;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    const int thread = grid.block().rank();
    const int threads = grid.block().size();
    const auto end = arch::nanoseconds() + litmusNanoseconds;
    auto* word = reinterpret_cast<Word16*>(words.at(1)) + thread;
    Sightings own{};
    std::uint64_t last = 0;
    for (std::uint64_t version = 1; arch::nanoseconds() < end; ++version) {
      for (int row = 0; row < litmusRows; ++row) {
        auto* at = word + row * threads;
        if (rank == 0) {
          arch::store<arch::Order::Relaxed, arch::Scope::System>(at, Word16{version, version});
          continue;
        }
        const Word16 seen = arch::load<arch::Order::Relaxed, arch::Scope::System>(at);
        if (seen.lo != seen.hi) ++own.broken;
        if (row == 0) {
          if (seen.lo != last) ++own.versions;
          last = seen.lo;
        }
        ++own.reads;
      }
    }
    if (rank == 1) reinterpret_cast<Sightings*>(sightings.at(1))[thread] = own;
  }
};

template <class Body>
void checkLitmus(std::size_t bytesOfWarp) {
  GpuBackend backend;
  constexpr int warps = 8;
  auto memory = backend.allocate(2, bytesOfWarp * warps, 0);
  auto sightings = backend.allocate(2, sizeof(Sightings) * warps * 32, 0);
  backend.launch({2, 1, warps}, Body{memory.window(), sightings.window()});
  Sightings total{};
  for (const auto& one : sightings.read<Sightings>(1)) {
    total.reads += one.reads;
    total.versions += one.versions;
    total.broken += one.broken;
  }
  MESSAGE(total.reads << " reads, " << total.versions << " of them of a new version, " << total.broken << " broken");
  CHECK(total.broken == 0);
  CHECK(total.reads > 1'000'000);
  CHECK(total.versions > 10'000);
}

TEST_CASE("ll128: a line that a warp stores at once is never older than its flag") {
  checkLitmus<WholeLineLitmusBody>(litmusRows * 512);
}

TEST_CASE("ll16, sentinel: a 16-byte store is seen whole") {
  checkLitmus<WholeWordLitmusBody>(litmusRows * 32 * 16);
}

}  // namespace mscclpp::test
