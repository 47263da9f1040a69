// The compiled all-reduce algorithms, and the element types, operators and team sizes that they are compiled for.
#pragma once

#include <array>
#include <type_traits>

#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/collective/config.hpp"

namespace mscclpp::kernels {

/// The backends that an algorithm is compiled for.
enum class Backends { CpuAndGpu, GpuOnly };

/// An algorithm, as named by Collectives::algorithms().
struct AllReduceAlgorithm {
  const char* name;
  AllReduceConfig config;  ///< with ranks = 0; each compiled variant sets its own
  std::size_t maxBytes;    ///< largest message, which determines the size of the scratch; 0: no limit
  Backends backends;
};

inline constexpr std::size_t KiB = 1024;
inline constexpr std::size_t MiB = 1024 * KiB;
inline constexpr std::size_t noLimit = 0;

// clang-format off
inline constexpr auto allReduceAlgorithms = std::to_array<AllReduceAlgorithm>({
  // name               protocol             pattern             max bytes  backends
  {"one_shot_ll8",      {Protocol::LL8,      Pattern::OneShot}, 256 * KiB, Backends::CpuAndGpu},
  {"one_shot_ll16",     {Protocol::LL16,     Pattern::OneShot}, 256 * KiB, Backends::CpuAndGpu},
  {"one_shot_ll128",    {Protocol::LL128,    Pattern::OneShot}, 256 * KiB, Backends::GpuOnly},
  {"one_shot_sentinel", {Protocol::Sentinel, Pattern::OneShot}, 256 * KiB, Backends::CpuAndGpu},
  {"two_shot_ll16",     {Protocol::LL16,     Pattern::TwoShot}, 1 * MiB,   Backends::CpuAndGpu},
  {"two_shot_ll128",    {Protocol::LL128,    Pattern::TwoShot}, 4 * MiB,   Backends::GpuOnly},
  {"two_shot_sentinel", {Protocol::Sentinel, Pattern::TwoShot}, 16 * MiB,  Backends::CpuAndGpu},
  {"pipelined",         {Protocol::Simple,   Pattern::TwoShot}, noLimit,   Backends::CpuAndGpu},
});
// clang-format on

/// Packet kernels count packs in 32 bits.
constexpr bool packCountsFit() {
  for (const AllReduceAlgorithm& algorithm : allReduceAlgorithms) {
    if (algorithm.maxBytes / 16 > 0x7fffffffu) return false;
  }
  return true;
}
static_assert(packCountsFit());

/// The last algorithm supports every message size, type, operator and team size.
inline constexpr std::size_t fallbackAlgorithm = allReduceAlgorithms.size() - 1;

/// Team sizes with specialised variants; other sizes use the variant for any size.
inline constexpr std::array fixedTeamSizes = {2, 4, 8};

/// Whether every algorithm is compiled for T and Op, for every fixed team size: those common in inference and training.
/// Others have the algorithms of compiledForEveryType(), for any team size.
template <class T, class Op>
inline constexpr bool hasAllVariants = std::is_same_v<Op, Sum> &&
                                       (std::is_same_v<T, f16> || std::is_same_v<T, bf16> || std::is_same_v<T, float>);

/// Whether every algorithm is also compiled with tracing of its stages for T and Op.
template <class T, class Op>
inline constexpr bool hasTracedVariant = std::is_same_v<Op, Sum> &&
                                         (std::is_same_v<T, bf16> || std::is_same_v<T, float>);

/// Whether the algorithm is compiled for all types and operators.
constexpr bool compiledForEveryType(const AllReduceAlgorithm& algorithm) {
  return isPipelined(algorithm.config.protocol) ||
         (algorithm.config.protocol == Protocol::LL16 && algorithm.config.pattern == Pattern::OneShot);
}

}  // namespace mscclpp::kernels
