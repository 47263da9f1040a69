// The library's types for the element types of CUTLASS.
#pragma once

#include <cutlass/numeric_types.h>

#include "mscclpp/basic/element.hpp"

namespace mscclpp::detail {

/// The library's type for an element type of CUTLASS.
template <class T>
struct ElementOf {
  using Type = T;
};
template <>
struct ElementOf<cutlass::bfloat16_t> {
  using Type = bf16;
};
template <>
struct ElementOf<cutlass::half_t> {
  using Type = f16;
};

}  // namespace mscclpp::detail
