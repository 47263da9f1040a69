// Element types and reduction operators as instructions name them.
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
struct KnownKind {
  static constexpr bool exists = true;
  static constexpr arch::ElementKind value = kind;
};
template <>
struct ElementKindOf<f16> : KnownKind<arch::ElementKind::F16> {};
template <>
struct ElementKindOf<bf16> : KnownKind<arch::ElementKind::BF16> {};
template <>
struct ElementKindOf<float> : KnownKind<arch::ElementKind::F32> {};
template <>
struct ElementKindOf<double> : KnownKind<arch::ElementKind::F64> {};
template <>
struct ElementKindOf<std::int32_t> : KnownKind<arch::ElementKind::S32> {};
template <>
struct ElementKindOf<std::uint32_t> : KnownKind<arch::ElementKind::U32> {};
template <>
struct ElementKindOf<std::int64_t> : KnownKind<arch::ElementKind::S64> {};
template <>
struct ElementKindOf<std::uint64_t> : KnownKind<arch::ElementKind::U64> {};
template <>
struct ElementKindOf<f8e4m3> : KnownKind<arch::ElementKind::E4M3> {};
template <>
struct ElementKindOf<f8e5m2> : KnownKind<arch::ElementKind::E5M2> {};

/// The operator of an instruction as a reduction operator, for the twin.
template <arch::Arithmetic op>
struct OperatorOf;
template <>
struct OperatorOf<arch::Arithmetic::Add> {
  using Type = Sum;
};
template <>
struct OperatorOf<arch::Arithmetic::Min> {
  using Type = Min;
};
template <>
struct OperatorOf<arch::Arithmetic::Max> {
  using Type = Max;
};

}  // namespace detail

/// Whether instructions that do arithmetic on memory know the type at all.
template <class T>
inline constexpr bool hasElementKind = detail::ElementKindOf<T>::exists;
template <class T>
inline constexpr arch::ElementKind elementKind = detail::ElementKindOf<T>::value;

}  // namespace mscclpp
