// The element types that instructions name, for those which do arithmetic on memory.
#pragma once

namespace mscclpp::arch {

/// E4M3 and E5M2 are fp8.
enum class ElementKind { F16, BF16, F32, F64, S32, U32, S64, U64, E4M3, E5M2 };

/// What an instruction makes of two elements.
enum class Arithmetic { Add, Min, Max };

}  // namespace mscclpp::arch
