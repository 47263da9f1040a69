// Plain values that ranks tell each other, as bytes.
#pragma once

#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/nccl/result.hpp"

namespace mscclpp::nccl {

template <class Value>
std::vector<char> toBytes(const Value& value) {
  static_assert(std::is_trivially_copyable_v<Value>);
  const auto* bytes = reinterpret_cast<const char*>(&value);
  return {bytes, bytes + sizeof value};
}

/// Throws ncclInvalidUsage for bytes of another size.
template <class Value>
Value valueOf(const std::vector<char>& bytes) {
  static_assert(std::is_trivially_copyable_v<Value>);
  Value value{};
  if (bytes.size() != sizeof value) throwInvalidUsage("another rank runs another version of mscclpp: use the same one");
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace mscclpp::nccl
