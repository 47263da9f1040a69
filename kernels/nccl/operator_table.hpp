// The operators that a program creates: sums whose contributions are multiplied by a factor first.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

#include "kernels/nccl/types.hpp"

namespace mscclpp::nccl {

struct PreMulSum {
  ncclDataType_t type;
  bool isOnHost;
  alignas(8) std::array<std::byte, 8> value;  ///< one element of the type, if it is on the host
  const void* address;                        ///< else: of the element, in memory that the device can read
};

/// Those of one communicator. Any thread may call the functions.
class OperatorTable {
 public:
  /// Reads the scalar now if it is on the host.
  ncclRedOp_t add(const void* scalar, ncclDataType_t type, ncclScalarResidence_t residence);
  void remove(ncclRedOp_t op);
  /// Both throw ncclInvalidArgument unless add() returned `op`, and remove() has not removed it.
  PreMulSum at(ncclRedOp_t op) const;

 private:
  std::size_t indexOf(ncclRedOp_t op) const;

  mutable std::mutex mutex_;
  std::vector<std::optional<PreMulSum>> operators_;  // number ncclNumOps and on
};

}  // namespace mscclpp::nccl
