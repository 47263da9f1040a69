// The checks of a call of an all-reduce that sends fp8.
#include <cstdint>
#include <limits>
#include <string>

#include "all_reduce_fp8.hpp"
#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::kernels {

bool requireValid(const Fp8Call& call, DataType type) {
  const auto fail = [](const std::string& why) { throw Error("all_reduce_fp8: " + why, ErrorCode::InvalidUsage); };
  if (type != DataType::FLOAT32 && type != DataType::FLOAT16 && type != DataType::BFLOAT16) {
    fail(std::string("data type ") + nameOf(type) + " is not supported; convert to float, half or bfloat16");
  }
  const std::size_t size = sizeOf(type);
  if (call.count > std::numeric_limits<std::size_t>::max() / 4 / size) {
    fail("count is larger than the address space; was it a negative number?");
  }
  if (call.count == 0) return false;
  const auto requireArray = [&](const std::string& name, const void* data) {
    if (data == nullptr) fail(name + " is null and count is not 0");
    if (reinterpret_cast<std::uintptr_t>(data) % size != 0) {
      fail(name + " must be aligned to its elements of " + std::to_string(size) + " bytes");
    }
  };
  requireArray("input", call.input);
  requireArray("output", call.output);
  const auto from = reinterpret_cast<std::uintptr_t>(call.input);
  const auto to = reinterpret_cast<std::uintptr_t>(call.output);
  const std::size_t bytes = call.count * size;
  if (from != to && from < to + bytes && to < from + bytes) {
    fail("input and output overlap; in place, they are the same");
  }
  return true;
}

}  // namespace mscclpp::kernels
