#include <cstdint>
#include <limits>
#include <string>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/sync/window.hpp"
#include "rms_norm.hpp"

namespace mscclpp::kernels {

namespace {

struct Array {
  const char* name;
  const void* data;
  bool isRequired;
};
void requireArray(const RmsNormCall& call, const Array& array, const std::string& name) {
  const auto fail = [&](const char* why) {
    throw Error(name + ": " + array.name + " is " + why, ErrorCode::InvalidUsage);
  };
  if (array.isRequired && array.data == nullptr && call.rows > 0) fail("null");
  if (reinterpret_cast<std::uintptr_t>(array.data) % sizeof(Word128) != 0) {
    fail("not at a multiple of 16 bytes: copy it");
  }
}

}  // namespace

bool requireValid(const RmsNormCall& call) {
  const char* const name = "all_reduce_rms_norm";
  requireValidNorm(call, name);
  requireArray(call, {"input", call.input, true}, name);
  return call.rows > 0;
}

void requireValidNorm(const RmsNormCall& call, const std::string& name) {
  const auto fail = [&](const std::string& why) { throw Error(name + ": " + why, ErrorCode::InvalidUsage); };
  const std::size_t size = sizeOf(call.type);
  if (call.type != DataType::FLOAT32 && call.type != DataType::FLOAT16 && call.type != DataType::BFLOAT16) {
    fail(std::string("data type ") + nameOf(call.type) + " is not supported; convert to float, half or bfloat16");
  }
  if (call.hidden == 0 || call.hidden * size % sizeof(Word128) != 0 || call.hidden > mostRmsNormElements) {
    fail("rows have " + std::to_string(call.hidden) + " elements; they have up to " +
         std::to_string(mostRmsNormElements) + ", in multiples of " + std::to_string(sizeof(Word128) / size));
  }
  if (call.rows > std::numeric_limits<std::size_t>::max() / 4 / call.hidden / size) {
    fail("rows is larger than the address space; was it a negative number?");
  }
  const bool isQuantised = call.quantisation != Quantisation::None;
  if (isQuantised && size != 2) {
    fail("rows of float are not quantised; convert to half or bfloat16");
  }
  if (isQuantised != (call.quantised != nullptr) && call.rows > 0) {
    fail(isQuantised ? "quantised is null" : "quantised is given without a quantisation");
  }
  if (call.rows > 0 && call.scalesOfRow() > 0 && call.scales == nullptr) fail("scales is null");
  if (call.quantisation == Quantisation::Fp8Static && call.scale == nullptr) fail("scale is null");
  for (const Array& array : {Array{"weight", call.weight, true}, Array{"residual", call.residual, false},
                             Array{"newResidual", call.newResidual, false}, Array{"normalised", call.normalised, false},
                             Array{"quantised", call.quantised, false}}) {
    requireArray(call, array, name);
  }
}

}  // namespace mscclpp::kernels
