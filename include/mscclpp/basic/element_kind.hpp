// Maps element types and reduction operators to those of arch/element_kind.hpp.
#pragma once

#include "mscclpp/arch/element_kind.hpp"
#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/reduce_op.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

namespace detail {

template <class T>
struct ElementKindOf {
  static constexpr bool exists = false;
  static constexpr arch::ElementKind value = arch::ElementKind::U32;
};
template <arch::ElementKind kind>
struct ElementKindConstant {
  static constexpr bool exists = true;
  static constexpr arch::ElementKind value = kind;
};
template <>
struct ElementKindOf<f16> : ElementKindConstant<arch::ElementKind::F16> {};
template <>
struct ElementKindOf<bf16> : ElementKindConstant<arch::ElementKind::BF16> {};
template <>
struct ElementKindOf<float> : ElementKindConstant<arch::ElementKind::F32> {};
template <>
struct ElementKindOf<double> : ElementKindConstant<arch::ElementKind::F64> {};
template <>
struct ElementKindOf<std::int32_t> : ElementKindConstant<arch::ElementKind::S32> {};
template <>
struct ElementKindOf<std::uint32_t> : ElementKindConstant<arch::ElementKind::U32> {};
template <>
struct ElementKindOf<std::int64_t> : ElementKindConstant<arch::ElementKind::S64> {};
template <>
struct ElementKindOf<std::uint64_t> : ElementKindConstant<arch::ElementKind::U64> {};
template <>
struct ElementKindOf<f8e4m3> : ElementKindConstant<arch::ElementKind::E4M3> {};
template <>
struct ElementKindOf<f8e5m2> : ElementKindConstant<arch::ElementKind::E5M2> {};

/// The reduction operator of an instruction's operation, for the CPU implementation.
template <arch::HardwareReduceOp op>
struct OperatorOf;
template <>
struct OperatorOf<arch::HardwareReduceOp::Add> {
  using Type = Sum;
};
template <>
struct OperatorOf<arch::HardwareReduceOp::Min> {
  using Type = Min;
};
template <>
struct OperatorOf<arch::HardwareReduceOp::Max> {
  using Type = Max;
};

}  // namespace detail

/// Whether any instruction does arithmetic on memory for elements T.
template <class T>
inline constexpr bool hasElementKind = detail::ElementKindOf<T>::exists;
template <class T>
inline constexpr arch::ElementKind elementKind = detail::ElementKindOf<T>::value;

}  // namespace mscclpp
