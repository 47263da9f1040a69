// The reductions that a switch can do, and the instruction of each (PTX multimem.ld_reduce and multimem.red).
//
// All are relaxed at system scope. In parentheses: bytes per instruction, and the types to accumulate in.
//   load-reduce   add        fp16, bf16 (4, 8, 16; in their own type or in fp32), fp32 (4, 8, 16), fp64,
//                            32- and 64-bit integers, fp8 (4, 8, 16; in the default type or in fp16; sm_100a, sm_103a)
//                 min, max   fp16, bf16 (4, 8, 16), 32- and 64-bit integers, fp8 (4, 8, 16; sm_100a, sm_103a)
//   store-reduce  add        fp16, bf16 (4, 8, 16), fp32 (4, 8, 16), fp64, 32- and 64-bit integers
//                 min, max   fp16, bf16 (4, 8, 16), 32- and 64-bit integers
//   store         any type of 4, 8 or 16 bytes
#pragma once

#include "mscclpp/arch/element_kind.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::arch {

/// The type in which a load-reduce accumulates: the instruction's default, fp32 (for fp16, bf16), or fp16 (for fp8).
enum class Accumulation { Native, F32, F16 };

/// Whether the target of this compilation can reduce fp8 in the switch.
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM100_ALL) && !defined(__CUDA_ARCH_FEAT_SM103_ALL)
inline constexpr bool multimemReducesFp8 = false;
#else
inline constexpr bool multimemReducesFp8 = true;
#endif

constexpr MSCCLPP_HOST_DEVICE bool isFp8(ElementKind kind) {
  return kind == ElementKind::E4M3 || kind == ElementKind::E5M2;
}
constexpr MSCCLPP_HOST_DEVICE bool isHalf(ElementKind kind) {
  return kind == ElementKind::F16 || kind == ElementKind::BF16;
}

/// Whether an instruction reduces `bytes` bytes of this kind into every replica.
constexpr MSCCLPP_HOST_DEVICE bool multimemStoreReduces(HardwareReduceOp op, ElementKind kind, int bytes) {
  const bool vector = bytes == 4 || bytes == 8 || bytes == 16;
  switch (kind) {
    case ElementKind::F16:
    case ElementKind::BF16:
      return vector;
    case ElementKind::F32:
      return vector && op == HardwareReduceOp::Add;
    case ElementKind::F64:
      return bytes == 8 && op == HardwareReduceOp::Add;
    case ElementKind::S32:
    case ElementKind::U32:
      return bytes == 4;
    case ElementKind::S64:
    case ElementKind::U64:
      return bytes == 8;
    default:
      return false;
  }
}

/// Whether an instruction loads a reduction of `bytes` bytes of this kind, accumulated in `in`.
constexpr MSCCLPP_HOST_DEVICE bool multimemLoadReduces(HardwareReduceOp op, ElementKind kind, int bytes,
                                                       Accumulation in) {
  if (isFp8(kind)) {
    return (bytes == 4 || bytes == 8 || bytes == 16) &&
           (in == Accumulation::Native || (in == Accumulation::F16 && op == HardwareReduceOp::Add));
  }
  if (in != Accumulation::Native && !(in == Accumulation::F32 && isHalf(kind) && op == HardwareReduceOp::Add))
    return false;
  return multimemStoreReduces(op, kind, bytes);
}

#if defined(__CUDA_ARCH__)
namespace ptx {

// One specialisation for each row of the table.
template <HardwareReduceOp op, ElementKind kind, int bytes, Accumulation in>
struct MultimemLoadReduce;
template <HardwareReduceOp op, ElementKind kind, int bytes>
struct MultimemStoreReduce;

#define MSCCLPP_ARCH_LOAD4(op, kind, in, text)                                                                \
  template <>                                                                                                 \
  struct MultimemLoadReduce<HardwareReduceOp::op, ElementKind::kind, 4, Accumulation::in> {                   \
    MSCCLPP_DEVICE __forceinline__ static std::uint32_t run(const void* a) {                                  \
      std::uint32_t v;                                                                                        \
      asm volatile("multimem.ld_reduce.relaxed.sys.global." text " %0, [%1];" : "=r"(v) : "l"(a) : "memory"); \
      return v;                                                                                               \
    }                                                                                                         \
  };
#define MSCCLPP_ARCH_LOAD8(op, kind, in, text)                                                                \
  template <>                                                                                                 \
  struct MultimemLoadReduce<HardwareReduceOp::op, ElementKind::kind, 8, Accumulation::in> {                   \
    MSCCLPP_DEVICE __forceinline__ static std::uint64_t run(const void* a) {                                  \
      std::uint64_t v;                                                                                        \
      asm volatile("multimem.ld_reduce.relaxed.sys.global." text " %0, [%1];" : "=l"(v) : "l"(a) : "memory"); \
      return v;                                                                                               \
    }                                                                                                         \
  };
#define MSCCLPP_ARCH_LOAD_V2(op, kind, in, text)                                            \
  template <>                                                                               \
  struct MultimemLoadReduce<HardwareReduceOp::op, ElementKind::kind, 8, Accumulation::in> { \
    MSCCLPP_DEVICE __forceinline__ static std::uint64_t run(const void* a) {                \
      std::uint32_t x, y;                                                                   \
      asm volatile("multimem.ld_reduce.relaxed.sys.global." text " {%0, %1}, [%2];"         \
                   : "=r"(x), "=r"(y)                                                       \
                   : "l"(a)                                                                 \
                   : "memory");                                                             \
      return static_cast<std::uint64_t>(y) << 32 | x;                                       \
    }                                                                                       \
  };
#define MSCCLPP_ARCH_LOAD_V4(op, kind, in, text)                                                 \
  template <>                                                                                    \
  struct MultimemLoadReduce<HardwareReduceOp::op, ElementKind::kind, 16, Accumulation::in> {     \
    MSCCLPP_DEVICE __forceinline__ static Word128 run(const void* a) {                           \
      std::uint32_t x, y, z, w;                                                                  \
      asm volatile("multimem.ld_reduce.relaxed.sys.global." text " {%0, %1, %2, %3}, [%4];"      \
                   : "=r"(x), "=r"(y), "=r"(z), "=r"(w)                                          \
                   : "l"(a)                                                                      \
                   : "memory");                                                                  \
      return {static_cast<std::uint64_t>(y) << 32 | x, static_cast<std::uint64_t>(w) << 32 | z}; \
    }                                                                                            \
  };
#define MSCCLPP_ARCH_RED4(op, kind, text)                                                             \
  template <>                                                                                         \
  struct MultimemStoreReduce<HardwareReduceOp::op, ElementKind::kind, 4> {                            \
    MSCCLPP_DEVICE __forceinline__ static void run(void* a, std::uint32_t v) {                        \
      asm volatile("multimem.red.relaxed.sys.global." text " [%0], %1;" ::"l"(a), "r"(v) : "memory"); \
    }                                                                                                 \
  };
#define MSCCLPP_ARCH_RED8(op, kind, text)                                                             \
  template <>                                                                                         \
  struct MultimemStoreReduce<HardwareReduceOp::op, ElementKind::kind, 8> {                            \
    MSCCLPP_DEVICE __forceinline__ static void run(void* a, std::uint64_t v) {                        \
      asm volatile("multimem.red.relaxed.sys.global." text " [%0], %1;" ::"l"(a), "l"(v) : "memory"); \
    }                                                                                                 \
  };
#define MSCCLPP_ARCH_RED_V2(op, kind, text)                                                     \
  template <>                                                                                   \
  struct MultimemStoreReduce<HardwareReduceOp::op, ElementKind::kind, 8> {                      \
    MSCCLPP_DEVICE __forceinline__ static void run(void* a, std::uint64_t v) {                  \
      asm volatile("multimem.red.relaxed.sys.global." text " [%0], {%1, %2};" ::"l"(a),         \
                   "r"(static_cast<std::uint32_t>(v)), "r"(static_cast<std::uint32_t>(v >> 32)) \
                   : "memory");                                                                 \
    }                                                                                           \
  };
#define MSCCLPP_ARCH_RED_V4(op, kind, text)                                                            \
  template <>                                                                                          \
  struct MultimemStoreReduce<HardwareReduceOp::op, ElementKind::kind, 16> {                            \
    MSCCLPP_DEVICE __forceinline__ static void run(void* a, Word128 v) {                               \
      asm volatile("multimem.red.relaxed.sys.global." text " [%0], {%1, %2, %3, %4};" ::"l"(a),        \
                   "r"(static_cast<std::uint32_t>(v.lo)), "r"(static_cast<std::uint32_t>(v.lo >> 32)), \
                   "r"(static_cast<std::uint32_t>(v.hi)), "r"(static_cast<std::uint32_t>(v.hi >> 32))  \
                   : "memory");                                                                        \
    }                                                                                                  \
  };
// Two 16-bit elements: PTX has min and max of them as a .v2 vector, not as a packed pair.
#define MSCCLPP_ARCH_RED_PAIR(op, kind, text)                                                   \
  template <>                                                                                   \
  struct MultimemStoreReduce<HardwareReduceOp::op, ElementKind::kind, 4> {                      \
    MSCCLPP_DEVICE __forceinline__ static void run(void* a, std::uint32_t v) {                  \
      asm volatile("multimem.red.relaxed.sys.global." text " [%0], {%1, %2};" ::"l"(a),         \
                   "h"(static_cast<std::uint16_t>(v)), "h"(static_cast<std::uint16_t>(v >> 16)) \
                   : "memory");                                                                 \
    }                                                                                           \
  };

#define MSCCLPP_ARCH_LOADS(op, kind, in, opText, type)   \
  MSCCLPP_ARCH_LOAD4(op, kind, in, opText "." type)      \
  MSCCLPP_ARCH_LOAD_V2(op, kind, in, opText ".v2." type) \
  MSCCLPP_ARCH_LOAD_V4(op, kind, in, opText ".v4." type)
#define MSCCLPP_ARCH_HALF(kind, type)                           \
  MSCCLPP_ARCH_LOADS(Add, kind, Native, "add", type "x2")       \
  MSCCLPP_ARCH_LOADS(Add, kind, F32, "add.acc::f32", type "x2") \
  MSCCLPP_ARCH_LOADS(Min, kind, Native, "min", type "x2")       \
  MSCCLPP_ARCH_LOADS(Max, kind, Native, "max", type "x2")       \
  MSCCLPP_ARCH_RED4(Add, kind, "add." type "x2")                \
  MSCCLPP_ARCH_RED_V2(Add, kind, "add.v2." type "x2")           \
  MSCCLPP_ARCH_RED_V4(Add, kind, "add.v4." type "x2")           \
  MSCCLPP_ARCH_RED_PAIR(Min, kind, "min.v2." type)              \
  MSCCLPP_ARCH_RED_V2(Min, kind, "min.v2." type "x2")           \
  MSCCLPP_ARCH_RED_V4(Min, kind, "min.v4." type "x2")           \
  MSCCLPP_ARCH_RED_PAIR(Max, kind, "max.v2." type)              \
  MSCCLPP_ARCH_RED_V2(Max, kind, "max.v2." type "x2")           \
  MSCCLPP_ARCH_RED_V4(Max, kind, "max.v4." type "x2")
// The hardware has only unsigned 64-bit sums, which give the same bits as signed ones.
#define MSCCLPP_ARCH_INTEGER(width, kind, sum, type)                                                               \
  MSCCLPP_ARCH_LOAD##width(Add, kind, Native, "add." sum) MSCCLPP_ARCH_LOAD##width(Min, kind, Native, "min." type) \
      MSCCLPP_ARCH_LOAD##width(Max, kind, Native, "max." type) MSCCLPP_ARCH_RED##width(Add, kind, "add." sum)      \
          MSCCLPP_ARCH_RED##width(Min, kind, "min." type) MSCCLPP_ARCH_RED##width(Max, kind, "max." type)

MSCCLPP_ARCH_HALF(F16, "f16")
MSCCLPP_ARCH_HALF(BF16, "bf16")
MSCCLPP_ARCH_LOADS(Add, F32, Native, "add", "f32")
MSCCLPP_ARCH_RED4(Add, F32, "add.f32")
MSCCLPP_ARCH_RED_V2(Add, F32, "add.v2.f32")
MSCCLPP_ARCH_RED_V4(Add, F32, "add.v4.f32")
MSCCLPP_ARCH_LOAD8(Add, F64, Native, "add.f64")
MSCCLPP_ARCH_RED8(Add, F64, "add.f64")
MSCCLPP_ARCH_INTEGER(4, S32, "s32", "s32")
MSCCLPP_ARCH_INTEGER(4, U32, "u32", "u32")
MSCCLPP_ARCH_INTEGER(8, S64, "u64", "s64")
MSCCLPP_ARCH_INTEGER(8, U64, "u64", "u64")
#define MSCCLPP_ARCH_FP8(kind, type)                            \
  MSCCLPP_ARCH_LOADS(Add, kind, Native, "add", type "x4")       \
  MSCCLPP_ARCH_LOADS(Add, kind, F16, "add.acc::f16", type "x4") \
  MSCCLPP_ARCH_LOADS(Min, kind, Native, "min", type "x4")       \
  MSCCLPP_ARCH_LOADS(Max, kind, Native, "max", type "x4")
MSCCLPP_ARCH_FP8(E4M3, "e4m3")
MSCCLPP_ARCH_FP8(E5M2, "e5m2")

#undef MSCCLPP_ARCH_FP8
#undef MSCCLPP_ARCH_INTEGER
#undef MSCCLPP_ARCH_HALF
#undef MSCCLPP_ARCH_LOADS
#undef MSCCLPP_ARCH_RED_PAIR
#undef MSCCLPP_ARCH_RED_V4
#undef MSCCLPP_ARCH_RED_V2
#undef MSCCLPP_ARCH_RED8
#undef MSCCLPP_ARCH_RED4
#undef MSCCLPP_ARCH_LOAD_V4
#undef MSCCLPP_ARCH_LOAD_V2
#undef MSCCLPP_ARCH_LOAD8
#undef MSCCLPP_ARCH_LOAD4

}  // namespace ptx
#endif

}  // namespace mscclpp::arch
