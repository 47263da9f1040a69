// The compiled algorithms of all collectives, and what each is compiled for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "mscclpp/basic/element.hpp"
#include "mscclpp/collective/config.hpp"
#include "mscclpp/kernels/collective_call.hpp"

namespace mscclpp::kernels {

/// The backends that an algorithm is compiled for.
enum class Backends { CpuAndGpu, GpuOnly };

/// The kernels that an algorithm has on a GPU.
enum class Variants {
  CopyEngine,  ///< none: copy engines move the data, or what other kernels have reduced, into registered outputs
               ///< (copy_engine_mover.hpp)
  General,     ///< for any number of ranks and, if it reduces, any operator
  Specialized  ///< also kernels with the number of ranks fixed and, if it reduces, the operator Sum, for common types
};

/// An algorithm, as named by Collectives::algorithms(). Names are unique within a collective.
struct Algorithm {
  CollectiveType collective;
  const char* name;
  Protocol protocol;
  Pattern pattern;       ///< of AllReduce only
  std::size_t maxBytes;  ///< the longest message: bytes of CollectiveCall::count elements; noLimit: any
  Backends backends;
  Variants variants;
  Link link = Link::Slots;
};

inline constexpr std::size_t KiB = 1024;
inline constexpr std::size_t MiB = 1024 * KiB;
inline constexpr std::size_t noLimit = 0;

namespace detail {

using enum CollectiveType;
using enum Protocol;
using enum Pattern;
using enum Backends;
using enum Variants;

// The last algorithm of each collective supports messages of any size.
// clang-format off
inline constexpr auto algorithmTable = std::to_array<Algorithm>({
  {AllReduce,     "one_shot_ll16",     LL16,     OneShot, 256 * KiB, CpuAndGpu, General},
  {AllReduce,     "one_shot_ll128",    LL128,    OneShot, 256 * KiB, GpuOnly,   Specialized},
  {AllReduce,     "one_shot_sentinel", Sentinel, OneShot, 256 * KiB, CpuAndGpu, Specialized},
  {AllReduce,     "two_shot_ll16",     LL16,     TwoShot, 1 * MiB,   CpuAndGpu, General},
  {AllReduce,     "two_shot_ll128",    LL128,    TwoShot, 4 * MiB,   GpuOnly,   Specialized},
  {AllReduce,     "two_shot_sentinel", Sentinel, TwoShot, 16 * MiB,  CpuAndGpu, Specialized},
  {AllReduce,     "direct",            Simple,   TwoShot, noLimit,   CpuAndGpu, Specialized, Link::Outputs},
  {AllReduce,     "copy_engine",       Simple,   TwoShot, noLimit,   CpuAndGpu, CopyEngine},
  {AllReduce,     "pipelined",         Simple,   TwoShot, noLimit,   CpuAndGpu, Specialized},
  {AllGather,     "ll16",              LL16,     OneShot, 256 * KiB, CpuAndGpu, General},
  {AllGather,     "ll128",             LL128,    OneShot, 2 * MiB,   GpuOnly,   Specialized},
  {AllGather,     "sentinel",          Sentinel, OneShot, 8 * MiB,   CpuAndGpu, Specialized},
  {AllGather,     "direct",            Simple,   OneShot, noLimit,   CpuAndGpu, Specialized, Link::Outputs},
  {AllGather,     "bulk",              Bulk,     OneShot, noLimit,   CpuAndGpu, General,     Link::Outputs},
  {AllGather,     "copy_engine",       Simple,   OneShot, noLimit,   CpuAndGpu, CopyEngine},
  {AllGather,     "pipelined",         Simple,   OneShot, noLimit,   CpuAndGpu, Specialized},
  {ReduceScatter, "ll16",              LL16,     OneShot, 256 * KiB, CpuAndGpu, General},
  {ReduceScatter, "ll128",             LL128,    OneShot, 2 * MiB,   GpuOnly,   Specialized},
  {ReduceScatter, "sentinel",          Sentinel, OneShot, 8 * MiB,   CpuAndGpu, Specialized},
  {ReduceScatter, "pipelined",         Simple,   OneShot, noLimit,   CpuAndGpu, Specialized},
  {AllToAll,      "ll16",              LL16,     OneShot, 256 * KiB, CpuAndGpu, General},
  {AllToAll,      "ll128",             LL128,    OneShot, 2 * MiB,   GpuOnly,   Specialized},
  {AllToAll,      "sentinel",          Sentinel, OneShot, 8 * MiB,   CpuAndGpu, Specialized},
  {AllToAll,      "direct",            Simple,   OneShot, noLimit,   CpuAndGpu, Specialized, Link::Outputs},
  {AllToAll,      "bulk",              Bulk,     OneShot, noLimit,   CpuAndGpu, General,     Link::Outputs},
  {AllToAll,      "copy_engine",       Simple,   OneShot, noLimit,   CpuAndGpu, CopyEngine},
  {AllToAll,      "pipelined",         Simple,   OneShot, noLimit,   CpuAndGpu, Specialized},
  {Broadcast,     "ll16",              LL16,     OneShot, 256 * KiB, CpuAndGpu, General},
  {Broadcast,     "ll128",             LL128,    OneShot, 2 * MiB,   GpuOnly,   General},
  {Broadcast,     "direct",            Simple,   OneShot, noLimit,   CpuAndGpu, General,     Link::Outputs},
  {Broadcast,     "bulk",              Bulk,     OneShot, noLimit,   CpuAndGpu, General,     Link::Outputs},
  {Broadcast,     "copy_engine",       Simple,   OneShot, noLimit,   CpuAndGpu, CopyEngine},
  {Broadcast,     "pipelined",         Simple,   OneShot, noLimit,   CpuAndGpu, General},
  {Reduce,        "ll16",              LL16,     OneShot, 256 * KiB, CpuAndGpu, General},
  {Reduce,        "ll128",             LL128,    OneShot, 2 * MiB,   GpuOnly,   General},
  {Reduce,        "pipelined",         Simple,   OneShot, noLimit,   CpuAndGpu, General},
  {Gather,        "ll16",              LL16,     OneShot, 256 * KiB, CpuAndGpu, General},
  {Gather,        "ll128",             LL128,    OneShot, 2 * MiB,   GpuOnly,   General},
  {Gather,        "pipelined",         Simple,   OneShot, noLimit,   CpuAndGpu, General},
  {Scatter,       "ll16",              LL16,     OneShot, 256 * KiB, CpuAndGpu, General},
  {Scatter,       "ll128",             LL128,    OneShot, 2 * MiB,   GpuOnly,   General},
  {Scatter,       "pipelined",         Simple,   OneShot, noLimit,   CpuAndGpu, General},
  {SendReceive,   "ll16",              LL16,     OneShot, 64 * KiB,  CpuAndGpu, General},
  {SendReceive,   "ll128",             LL128,    OneShot, 1 * MiB,   GpuOnly,   General},
  {SendReceive,   "pipelined",         Simple,   OneShot, noLimit,   CpuAndGpu, General},
  {ReduceScatterV, "ll16",             LL16,     OneShot, 256 * KiB, CpuAndGpu, General},
  {ReduceScatterV, "pipelined",        Simple,   OneShot, noLimit,   CpuAndGpu, General},
});
// clang-format on

}  // namespace detail

using detail::algorithmTable;

/// The algorithm of a collective that supports messages of any size.
constexpr std::size_t fallbackOf(CollectiveType collective) {
  std::size_t found = algorithmTable.size();
  for (std::size_t i = 0; i < algorithmTable.size(); ++i) {
    if (algorithmTable[i].collective == collective) found = i;
  }
  return found;
}

/// The index of an algorithm; algorithmTable.size() if the collective has none of this name.
constexpr std::size_t indexOf(CollectiveType collective, std::string_view name) {
  for (std::size_t i = 0; i < algorithmTable.size(); ++i) {
    if (algorithmTable[i].collective == collective && algorithmTable[i].name == name) return i;
  }
  return algorithmTable.size();
}

/// The algorithms of SendReceive, which are those of the messages of an exchange too: consecutive indices.
inline constexpr std::size_t firstMessageAlgorithm = indexOf(CollectiveType::SendReceive, "ll16");
inline constexpr std::size_t messageAlgorithms = fallbackOf(CollectiveType::SendReceive) + 1 - firstMessageAlgorithm;

/// Packet kernels count packs in 32 bits, and every collective takes messages of any size.
constexpr bool areLimitsValid() {
  for (const Algorithm& algorithm : algorithmTable) {
    if (algorithm.maxBytes / 16 > 0x7fffffffu) return false;
    if (takesAnySize(algorithm.protocol) != (algorithm.maxBytes == noLimit)) return false;
    const std::size_t fallback = fallbackOf(algorithm.collective);
    if (algorithmTable[fallback].maxBytes != noLimit || algorithmTable[fallback].backends != Backends::CpuAndGpu)
      return false;
  }
  return true;
}
static_assert(areLimitsValid());

/// Whether an algorithm needs an output that all ranks have registered.
constexpr bool needsRegistration(const Algorithm& algorithm) {
  return algorithm.variants == Variants::CopyEngine || algorithm.link == Link::Outputs;
}

/// Whether a collective has such an algorithm.
constexpr bool hasRegisteredForm(CollectiveType collective) {
  for (const Algorithm& algorithm : algorithmTable) {
    if (algorithm.collective == collective && needsRegistration(algorithm)) return true;
  }
  return false;
}

constexpr bool isTooLong(const Algorithm& algorithm, std::size_t bytes) {
  return algorithm.maxBytes != noLimit && bytes > algorithm.maxBytes;
}

/// Numbers of ranks of specialized kernels; others use the kernel for any number.
inline constexpr std::array fixedTeamSizes = {2, 4, 8};

/// The element types of specialized kernels, and for which every algorithm is compiled: those that are common in
/// inference and training.
template <class T>
inline constexpr bool isCommonType = std::is_same_v<T, f16> || std::is_same_v<T, bf16> || std::is_same_v<T, float>;

/// Whether an algorithm that reduces is compiled for T: of rare types, one for short messages and one for all.
template <class T>
constexpr bool isCompiledFor(const Algorithm& algorithm) {
  return isCommonType<T> || (isPipelined(algorithm.protocol) && algorithm.link == Link::Slots) ||
         (algorithm.protocol == Protocol::LL16 && algorithm.pattern == Pattern::OneShot);
}

/// The collectives of which calls of a group are performed as one, for common types.
constexpr bool isJoined(CollectiveType collective) {
  return collective == CollectiveType::AllReduce || collective == CollectiveType::ReduceScatter;
}

/// Whether algorithms are also compiled with tracing of their stages for T. Keep in step with traced_types in
/// kernels/meson.build.
template <class T>
constexpr bool hasTracedKernels() {
  return std::is_same_v<T, bf16> || std::is_same_v<T, float>;
}
template <class T>
constexpr bool isTracedFor(const Algorithm& algorithm) {
  return algorithm.collective == CollectiveType::AllReduce && hasTracedKernels<T>();
}

}  // namespace mscclpp::kernels
