// Element types as run-time values, and visit(), which converts them and reduction operators to types.
#pragma once

#include "mscclpp/basic/element.hpp"
#include "mscclpp/basic/reduce_op.hpp"

namespace mscclpp {

/// Element types of the host API. Those up to FLOAT8_E4M3B15 have MSCCL++'s names and values. The FNUZ and B15 variants
/// of fp8 are not supported; they are listed so that errors can name them.
enum class DataType {
  INT32,
  UINT32,
  FLOAT16,
  FLOAT32,
  BFLOAT16,
  FLOAT8_E4M3FN,
  FLOAT8_E4M3FNUZ,
  FLOAT8_E5M2,
  FLOAT8_E5M2FNUZ,
  UINT8,
  FLOAT8_E4M3B15,
  INT8,
  INT16,
  UINT16,
  INT64,
  UINT64,
  FLOAT64,
  AUTO = 255
};

#if !defined(__CUDACC_RTC__)  // run-time values become types on the host

/// The name of an element type or operator in command lines and messages; "unknown" for any other value.
constexpr const char* nameOf(DataType type) {
  switch (type) {
    case DataType::INT32:
      return "int32";
    case DataType::UINT32:
      return "uint32";
    case DataType::FLOAT16:
      return "half";
    case DataType::FLOAT32:
      return "float";
    case DataType::BFLOAT16:
      return "bfloat16";
    case DataType::FLOAT8_E4M3FN:
      return "fp8_e4m3";
    case DataType::FLOAT8_E4M3FNUZ:
      return "fp8_e4m3fnuz";
    case DataType::FLOAT8_E5M2:
      return "fp8_e5m2";
    case DataType::FLOAT8_E5M2FNUZ:
      return "fp8_e5m2fnuz";
    case DataType::UINT8:
      return "uint8";
    case DataType::FLOAT8_E4M3B15:
      return "fp8_e4m3b15";
    case DataType::INT8:
      return "int8";
    case DataType::INT16:
      return "int16";
    case DataType::UINT16:
      return "uint16";
    case DataType::INT64:
      return "int64";
    case DataType::UINT64:
      return "uint64";
    case DataType::FLOAT64:
      return "double";
    case DataType::AUTO:
      return "auto";
  }
  return "unknown";
}
constexpr const char* nameOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::SUM:
      return "sum";
    case ReduceOp::PROD:
      return "prod";
    case ReduceOp::MAX:
      return "max";
    case ReduceOp::MIN:
      return "min";
    case ReduceOp::AVG:
      return "avg";
    case ReduceOp::NOP:
      return "nop";
  }
  return "unknown";
}

/// A type as a value, the argument of visit()'s function.
template <class T>
struct TypeTag {
  using Type = T;
};

/// Returns f(TypeTag<T>{}) for the element type T of `type`, or otherwise() for an unsupported type.
template <class F, class Otherwise>
constexpr auto visit(DataType type, F&& f, Otherwise&& otherwise) {
  switch (type) {
    case DataType::INT8:
      return f(TypeTag<std::int8_t>{});
    case DataType::UINT8:
      return f(TypeTag<std::uint8_t>{});
    case DataType::INT16:
      return f(TypeTag<std::int16_t>{});
    case DataType::UINT16:
      return f(TypeTag<std::uint16_t>{});
    case DataType::INT32:
      return f(TypeTag<std::int32_t>{});
    case DataType::UINT32:
      return f(TypeTag<std::uint32_t>{});
    case DataType::INT64:
      return f(TypeTag<std::int64_t>{});
    case DataType::UINT64:
      return f(TypeTag<std::uint64_t>{});
    case DataType::FLOAT16:
      return f(TypeTag<f16>{});
    case DataType::BFLOAT16:
      return f(TypeTag<bf16>{});
    case DataType::FLOAT32:
      return f(TypeTag<float>{});
    case DataType::FLOAT64:
      return f(TypeTag<double>{});
    case DataType::FLOAT8_E4M3FN:
      return f(TypeTag<f8e4m3>{});
    case DataType::FLOAT8_E5M2:
      return f(TypeTag<f8e5m2>{});
    default:
      return otherwise();
  }
}

/// The same for reduction operators.
template <class F, class Otherwise>
constexpr auto visit(ReduceOp op, F&& f, Otherwise&& otherwise) {
  switch (op) {
    case ReduceOp::SUM:
      return f(TypeTag<Sum>{});
    case ReduceOp::PROD:
      return f(TypeTag<Product>{});
    case ReduceOp::MAX:
      return f(TypeTag<Max>{});
    case ReduceOp::MIN:
      return f(TypeTag<Min>{});
    case ReduceOp::AVG:
      return f(TypeTag<Average>{});
    default:
      return otherwise();
  }
}

/// Bytes of one element; 0 for an unsupported type.
constexpr std::size_t sizeOf(DataType type) {
  return visit(
      type, [](auto tag) { return sizeof(typename decltype(tag)::Type); }, [] { return std::size_t{0}; });
}

#endif

}  // namespace mscclpp
