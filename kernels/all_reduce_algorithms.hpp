// The all-reduce algorithms that are compiled, a line each, and for which types, operators and team sizes.
#pragma once

#include <array>
#include <type_traits>

#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/collective/config.hpp"

namespace mscclpp::kernels {

struct AllReduceAlgorithm {
  const char* name;
  AllReduceConfig config;  ///< ranks = 0; the compiled variants differ in it
  std::size_t maxBytes;    ///< of a message, which sizes the scratch; 0: no limit
  bool onGpu;
  bool onCpu;
};

inline constexpr std::size_t KiB = 1024;
inline constexpr std::size_t MiB = 1024 * KiB;
inline constexpr std::size_t noLimit = 0;

// clang-format off
inline constexpr std::array allReduceAlgorithms = {
    //                 name                 protocol             pattern           schedule              max bytes   gpu    cpu
    AllReduceAlgorithm{"one_shot_ll8",      {Protocol::LL8,      Pattern::OneShot, Schedule::Whole},     256 * KiB,  true,  true},
    AllReduceAlgorithm{"one_shot_ll16",     {Protocol::LL16,     Pattern::OneShot, Schedule::Whole},     256 * KiB,  true,  true},
    AllReduceAlgorithm{"one_shot_ll128",    {Protocol::LL128,    Pattern::OneShot, Schedule::Whole},     256 * KiB,  true,  false},
    AllReduceAlgorithm{"one_shot_sentinel", {Protocol::Sentinel, Pattern::OneShot, Schedule::Whole},     256 * KiB,  true,  true},
    AllReduceAlgorithm{"two_shot_ll16",     {Protocol::LL16,     Pattern::TwoShot, Schedule::Whole},     1 * MiB,    true,  true},
    AllReduceAlgorithm{"two_shot_ll128",    {Protocol::LL128,    Pattern::TwoShot, Schedule::Whole},     4 * MiB,    true,  false},
    AllReduceAlgorithm{"two_shot_sentinel", {Protocol::Sentinel, Pattern::TwoShot, Schedule::Whole},     16 * MiB,   true,  true},
    AllReduceAlgorithm{"pipelined",         {Protocol::Simple,   Pattern::TwoShot, Schedule::Pipelined}, noLimit,    true,  true},
};
// clang-format on

/// Packet kernels count packs in 32 bits.
constexpr bool fitPackCounts() {
  for (const AllReduceAlgorithm& algorithm : allReduceAlgorithms) {
    if (algorithm.maxBytes / 16 > 0x7fffffffu) return false;
  }
  return true;
}
static_assert(fitPackCounts());

/// The last entry serves every message, type, operator and team size.
inline constexpr std::size_t fallbackAlgorithm = allReduceAlgorithms.size() - 1;

/// Team sizes with a variant of their own; any other size uses the variant for any size.
inline constexpr std::array fixedTeamSizes = {2, 4, 8};

/// Types and operators that inference and training reduce all day: every algorithm, every fixed team size. The others have the algorithms below, for any
/// team size.
template <class T, class Op>
inline constexpr bool hasEveryVariant = std::is_same_v<Op, Sum> &&
                                        (std::is_same_v<T, f16> || std::is_same_v<T, bf16> || std::is_same_v<T, float>);

/// Types and operators whose calls can record their stages: every algorithm and team size, compiled once more with tracing.
template <class T, class Op>
inline constexpr bool hasTracedVariant = std::is_same_v<Op, Sum> &&
                                         (std::is_same_v<T, bf16> || std::is_same_v<T, float>);

constexpr bool compiledForEveryType(const AllReduceAlgorithm& algorithm) {
  return algorithm.config.schedule == Schedule::Pipelined ||
         (algorithm.config.protocol == Protocol::LL16 && algorithm.config.pattern == Pattern::OneShot);
}

}  // namespace mscclpp::kernels
