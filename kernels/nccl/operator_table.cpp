#include "kernels/nccl/operator_table.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/nccl/element_type.hpp"
#include "kernels/nccl/result.hpp"

namespace mscclpp::nccl {

ncclRedOp_t OperatorTable::add(const void* scalar, ncclDataType_t type, ncclScalarResidence_t residence) {
  requirePointer(scalar, "scalar");
  const auto elementType = findType(type);
  if (!elementType) throwInvalidArgument("unknown data type " + std::to_string(type));
  if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate) {
    throwInvalidArgument("residence must be ncclScalarDevice or ncclScalarHostImmediate");
  }
  PreMulSum created{type, residence == ncclScalarHostImmediate, {}, scalar};
  if (created.isOnHost) std::memcpy(created.value.data(), scalar, sizeOf(*elementType));
  const std::lock_guard lock(mutex_);
  auto place = std::find_if(operators_.begin(), operators_.end(), [](const auto& each) { return !each; });
  if (place == operators_.end()) place = operators_.insert(place, std::nullopt);
  *place = created;
  return static_cast<ncclRedOp_t>(ncclNumOps + (place - operators_.begin()));
}

void OperatorTable::remove(ncclRedOp_t op) {
  const std::lock_guard lock(mutex_);
  operators_[indexOf(op)].reset();
}

PreMulSum OperatorTable::at(ncclRedOp_t op) const {
  const std::lock_guard lock(mutex_);
  return *operators_[indexOf(op)];
}

std::size_t OperatorTable::indexOf(ncclRedOp_t op) const {
  const auto index = static_cast<std::ptrdiff_t>(op) - ncclNumOps;
  if (index >= 0 && index < static_cast<std::ptrdiff_t>(operators_.size()) &&
      operators_[static_cast<std::size_t>(index)].has_value()) {
    return static_cast<std::size_t>(index);
  }
  throwInvalidArgument("unknown operator " + std::to_string(op) +
                       ": use one of NCCL's, or one that ncclRedOpCreatePreMulSum has created for this communicator");
}

}  // namespace mscclpp::nccl
