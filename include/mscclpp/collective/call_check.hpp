// The check of a call of a collective before it touches data: its arguments fit, and all ranks make the same call.
#pragma once

#include "mscclpp/arch/memory.hpp"
#include "mscclpp/arch/on_cpu.hpp"
#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/config.hpp"

#if MSCCLPP_CHECKED && !defined(__CUDACC_RTC__)
#include "mscclpp/basic/wait_error.hpp"
#endif

namespace mscclpp {

/// The words in which a rank says what it calls. The scratch of a collective that compares calls has room for those of
/// each rank, Scratch::callOffset(rank), also where calls are not checked. A word holds 32 bits of the statement and,
/// above them, 32 bits of the call's number, so that each is valid by itself and needs no order: checks shall not hide
/// an order that the collective lacks.
struct CallWords {
  static constexpr int count = 4;
  static constexpr std::size_t bytes = count * sizeof(std::uint64_t);
};

namespace detail {

#if MSCCLPP_CHECKED && !defined(__CUDACC_RTC__)
struct ThrowInvalidCall {
  [[noreturn]] static void run(const WaitRecord& record) { throw InvalidCall(record); }
};
#else
struct ThrowInvalidCall;
#endif

/// A number of the type: all ranks compute the same, and other types have other ones (FNV-1a of its name).
template <class C>
MSCCLPP_HOST_DEVICE constexpr std::uint32_t typeNumber() {
  std::uint32_t hash = 2166136261u;
  for (const char* c = __PRETTY_FUNCTION__; *c != 0; ++c) {
    hash = (hash ^ static_cast<std::uint32_t>(static_cast<unsigned char>(*c))) * 16777619u;
  }
  return hash;
}

/// A shape in one word.
MSCCLPP_HOST_DEVICE inline std::uint32_t wordOf(LaunchShape shape) {
  return static_cast<std::uint32_t>(shape.blocks) | (static_cast<std::uint32_t>(shape.threads) << 16);
}

/// Leaves the record of a wrong call; on a CPU also throws it. Returns false.
MSCCLPP_HOST_DEVICE inline bool refuseCall(BoundedWait& wait, const WaitSite& site, WaitOutcome outcome,
                                           std::uint64_t seen) {
  wait.fail(site, outcome, seen);
  if constexpr (checked) {
    const WaitRecord record{2, outcome, site.operation, site.rank, site.peer, site.block, site.expected, seen, 0};
    arch::onCpu<ThrowInvalidCall>(record);
  }
  return false;
}

/// The same for arguments that do not fit in this grid.
template <Grid GridType, class Args>
MSCCLPP_INLINE bool refuseArguments(const GridType& grid, const Args& args) {
  BoundedWait wait = args.wait;
  const WaitSite site{WaitOperation::Call, args.team.rank(), -1, static_cast<std::uint32_t>(grid.blockIndex()),
                      args.count};
  return refuseCall(wait, site, WaitOutcome::InvalidCall, wordOf({grid.blockCount(), grid.block().size()}));
}

}  // namespace detail

/// Returns whether C, the collective, accepts the arguments in this grid. Called by all threads of the grid. If not, it
/// leaves a record in args.wait's control block (basic/wait_error.hpp has its sentence), and throws InvalidCall on a
/// CPU; the data and the epochs are as before.
template <class C, Grid GridType, class Args>
MSCCLPP_HOST_DEVICE bool checkArguments(const GridType& grid, const Args& args) {
  if (C::accepts(args, LaunchShape{grid.blockCount(), grid.block().size()})) return true;
  return detail::refuseArguments(grid, args);
}

/// What compareCalls() requires of the numbers of blocks and threads.
enum class CallGrids {
  Same,  ///< on all ranks
  Any    ///< a collective whose ranks may differ in them
};

/// Returns whether all ranks call the same collective C with the same operator, count and numbers of blocks and
/// threads. Called by all threads of the grid, on every rank, with a count above 0. If not, it does as
/// checkArguments(); the record names the rank and the difference. A rank that does not call fails the wait of the
/// others.
template <class C, CallGrids grids = CallGrids::Same, Grid GridType, class Args>
MSCCLPP_HOST_DEVICE bool compareCalls(const GridType& grid, const Args& args) {
  const int rank = args.team.rank();
  const auto block = static_cast<std::uint32_t>(grid.blockIndex());
  const std::uint32_t gridWord = detail::wordOf({grid.blockCount(), grid.block().size()});
  BoundedWait wait = args.wait;
  const auto site = [&](int peer, std::uint64_t expected) {
    return WaitSite{WaitOperation::Call, rank, peer, block, expected};
  };
  std::uint32_t type = detail::typeNumber<C>();
  if constexpr (requires { args.op.number(); }) type += args.op.number();
  const std::uint64_t count = args.count;
  const std::uint32_t own[CallWords::count] = {type, static_cast<std::uint32_t>(count),
                                               static_cast<std::uint32_t>(count >> 32), gridWord};
  // The epoch is the same on all ranks, and grows from call to call. The words hold no call's number at first.
  const std::uint32_t number = static_cast<std::uint32_t>(args.epochs.current(grid)) + 1;
  const auto wordsOf = [&](int at, int from) {
    return reinterpret_cast<std::uint64_t*>(args.window.at(at, args.scratch.callOffset(from)));
  };
  if (block == 0 && grid.block().rank() == 0) {
    for (int i = 0; i < args.team.size() - 1; ++i) {
      std::uint64_t* const words = wordsOf(args.team.peer(i), rank);
      for (int w = 0; w < CallWords::count; ++w) {
        const std::uint64_t word = (std::uint64_t{number} << 32) | own[w];
        arch::store<arch::Order::Relaxed, arch::Scope::System>(words + w, word);
      }
    }
  }
  for (int i = 0; i < args.team.size() - 1; ++i) {
    const int peer = args.team.peer(i);
    const std::uint64_t* const words = wordsOf(rank, peer);
    std::uint32_t others[CallWords::count];
    bool isOver = false;
    for (int w = 0; w < CallWords::count; ++w) {
      std::uint64_t word = 0;
      const bool arrived = wait.until(site(peer, number), [&](std::uint64_t& seen) {
        word = arch::load<arch::Order::Relaxed, arch::Scope::System>(words + w);
        seen = word >> 32;
        return static_cast<std::int32_t>(static_cast<std::uint32_t>(seen) - number) >= 0;
      });
      if (!arrived) return false;
      others[w] = static_cast<std::uint32_t>(word);
      isOver = isOver || static_cast<std::uint32_t>(word >> 32) != number;
    }
    if (isOver) continue;  // the peer is in a later call already, since its check of this one has succeeded
    if (others[0] != own[0]) {
      return detail::refuseCall(wait, site(peer, own[0]), WaitOutcome::OtherCollective, others[0]);
    }
    const std::uint64_t otherCount = (std::uint64_t{others[2]} << 32) | others[1];
    if (otherCount != count) {
      return detail::refuseCall(wait, site(peer, count), WaitOutcome::OtherCount, otherCount);
    }
    if (grids == CallGrids::Same && others[3] != own[3]) {
      return detail::refuseCall(wait, site(peer, own[3]), WaitOutcome::OtherGrid, others[3]);
    }
  }
  return true;
}

}  // namespace mscclpp
