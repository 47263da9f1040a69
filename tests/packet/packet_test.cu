// The cases of packet/ on GPUs, and litmus tests of the hardware guarantees that LL128 and Sentinel rely on.
#include "copy_packets_cases.hpp"
#include "protocol_cases.hpp"

namespace mscclpp::test {

TEST_CASE("ll128: atomic lines") {
  checkProtocol<LL128<LineStore::Atomic>, 32>(300);
}

/// The results of a litmus test.
struct LitmusCounts {
  std::uint64_t reads;     ///< number of lines or words read
  std::uint64_t versions;  ///< number of reads that saw a new version
  std::uint64_t torn;      ///< number of reads that saw parts of different versions
};

constexpr std::uint64_t litmusNanoseconds = 2'000'000'000;
constexpr int litmusRows = 16;

/// Rank 0 keeps writing new versions of a few rows of LL128 lines to rank 1, without waiting; every word of a line
/// holds its version. Rank 1 reads them: a word may be newer than the flag of its line, since the reader's lanes may
/// read at different times, but never older.
struct LineTearingLitmusBody {
  Window<> lines;
  Window<> counts;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    using P = LL128<LineStore::Atomic>;
    const auto warp = grid.warp();
    const auto end = arch::nanoseconds() + litmusNanoseconds;
    LitmusCounts own{};
    std::uint64_t last[litmusRows] = {};
    for (std::uint64_t version = 1; warp.all(arch::nanoseconds() < end); ++version) {
      for (int row = 0; row < litmusRows; ++row) {
        const std::size_t at = static_cast<std::size_t>(grid.warpIndex() * litmusRows + row);
        if (rank == 0) {
          P::write(warp, lines.at(1), at, P::encode(warp, Word128{version, version}), version);
          continue;
        }
        const Word128 stored = P::fetch(warp, lines.at(1), at, 0).stored;
        const int flagLane = warp.rank() / 8 * 8 + 7;
        const std::uint64_t flag = static_cast<std::uint64_t>(warp.shuffle(stored.hi >> 32, flagLane)) << 32 |
                                   warp.shuffle(static_cast<std::uint32_t>(stored.hi), flagLane);
        if (!warp.all(stored.lo >= flag && stored.hi >= flag)) ++own.torn;
        if (flag != last[row]) ++own.versions;
        last[row] = flag;
        ++own.reads;
      }
    }
    if (rank == 1) reinterpret_cast<LitmusCounts*>(counts.at(1))[grid.block().rank()] = own;
  }
};

/// Each lane of rank 0 keeps writing new versions of a 16-byte word to rank 1; both halves hold the version. Rank 1
/// must never see two versions in one word.
struct WordTearingLitmusBody {
  Window<> words;
  Window<> counts;

  template <class GridType>
  MSCCLPP_HOST_DEVICE void operator()(int rank, const GridType& grid) const {
    const int thread = grid.block().rank();
    const int threads = grid.block().size();
    const auto end = arch::nanoseconds() + litmusNanoseconds;
    auto* word = reinterpret_cast<Word128*>(words.at(1)) + thread;
    LitmusCounts own{};
    std::uint64_t last = 0;
    for (std::uint64_t version = 1; arch::nanoseconds() < end; ++version) {
      for (int row = 0; row < litmusRows; ++row) {
        auto* at = word + row * threads;
        if (rank == 0) {
          arch::store<arch::Order::Relaxed, arch::Scope::System>(at, Word128{version, version});
          continue;
        }
        const Word128 seen = arch::load<arch::Order::Relaxed, arch::Scope::System>(at);
        if (seen.lo != seen.hi) ++own.torn;
        if (row == 0) {
          if (seen.lo != last) ++own.versions;
          last = seen.lo;
        }
        ++own.reads;
      }
    }
    if (rank == 1) reinterpret_cast<LitmusCounts*>(counts.at(1))[thread] = own;
  }
};

template <class Body>
void checkLitmus(std::size_t bytesPerWarp) {
  GpuBackend backend;
  constexpr int warps = 8;
  auto memory = backend.allocate(2, bytesPerWarp * warps, 0);
  auto counts = backend.allocate(2, sizeof(LitmusCounts) * warps * 32, 0);
  backend.launch({2, 1, warps}, Body{memory.window(), counts.window()});
  LitmusCounts total{};
  for (const auto& one : counts.read<LitmusCounts>(1)) {
    total.reads += one.reads;
    total.versions += one.versions;
    total.torn += one.torn;
  }
  MESSAGE(total.reads << " reads, " << total.versions << " of them of a new version, " << total.torn << " torn");
  CHECK(total.torn == 0);
  CHECK(total.reads > 1'000'000);
  CHECK(total.versions > 10'000);
}

TEST_CASE("ll128: a line stored by one warp instruction is never older than its flag") {
  checkLitmus<LineTearingLitmusBody>(litmusRows * 512);
}

TEST_CASE("ll16, sentinel: a 16-byte store is single-copy atomic") {
  checkLitmus<WordTearingLitmusBody>(litmusRows * 32 * 16);
}

}  // namespace mscclpp::test
