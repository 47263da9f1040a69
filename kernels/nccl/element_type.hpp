// NCCL's element types and operators in this library's terms.
#pragma once

#include <array>
#include <optional>

#include "kernels/nccl/types.hpp"
#include "mscclpp/basic/data_type.hpp"

namespace mscclpp::nccl {

/// Nothing for a value that is no type of NCCL's.
constexpr std::optional<DataType> findType(ncclDataType_t type) {
  constexpr std::array<DataType, ncclNumTypes> types{
      DataType::INT8,    DataType::UINT8,    DataType::INT32,         DataType::UINT32,
      DataType::INT64,   DataType::UINT64,   DataType::FLOAT16,       DataType::FLOAT32,
      DataType::FLOAT64, DataType::BFLOAT16, DataType::FLOAT8_E4M3FN, DataType::FLOAT8_E5M2};
  const auto index = static_cast<unsigned int>(type);
  return index < types.size() ? std::optional(types[index]) : std::nullopt;
}

/// Nothing for a value that is no operator of NCCL's; those that programs create are in OperatorTable.
constexpr std::optional<ReduceOp> findOperator(ncclRedOp_t op) {
  constexpr std::array<ReduceOp, ncclNumOps> operators{ReduceOp::SUM, ReduceOp::PROD, ReduceOp::MAX, ReduceOp::MIN,
                                                       ReduceOp::AVG};
  const auto index = static_cast<unsigned int>(op);
  return index < operators.size() ? std::optional(operators[index]) : std::nullopt;
}

}  // namespace mscclpp::nccl
