// Element types and operations of the instructions that do arithmetic on memory.
#pragma once

namespace mscclpp::arch {

/// E4M3 and E5M2 are fp8.
enum class ElementKind { F16, BF16, F32, F64, S32, U32, S64, U64, E4M3, E5M2 };

/// The operation of an instruction on two elements.
enum class HardwareReduceOp { Add, Min, Max };

}  // namespace mscclpp::arch
