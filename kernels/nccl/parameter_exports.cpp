// Exported functions: parameters. They are environment variables, as text or as the number that the text is.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "kernels/nccl/log.hpp"
#include "kernels/nccl/newer_functions.hpp"
#include "kernels/nccl/result.hpp"
#include "kernels/nccl/thread_value.hpp"

using namespace mscclpp::nccl;

namespace {

/// Those that this library reads of NCCL's, and its own for this API.
constexpr std::array<const char*, 11> keys{"NCCL_DEBUG",
                                           "NCCL_MAX_CTAS",
                                           "NCCL_NVLS_ENABLE",
                                           "NCCL_SOCKET_FAMILY",
                                           "NCCL_SOCKET_IFNAME",
                                           "MSCCLPP_NCCL_DEVICE",
                                           "MSCCLPP_NCCL_DUMP_DIR",
                                           "MSCCLPP_NCCL_INFO",
                                           "MSCCLPP_NCCL_LIB_PATH",
                                           "MSCCLPP_NCCL_TIMEOUT",
                                           "MSCCLPP_NCCL_VERSION"};

const char* const* findKey(const char* key) {
  requirePointer(key, "key");
  const auto found = std::find_if(keys.begin(), keys.end(), [key](const char* k) { return std::strcmp(k, key) == 0; });
  if (found == keys.end()) {
    throwInvalidArgument(std::string("there is no parameter ") + key + "; ncclParamGetAllParameterKeys lists them");
  }
  return &*found;
}

/// A handle points to its key.
const char* keyOf(ncclParamHandle_t handle) {
  const auto* key = reinterpret_cast<const char* const*>(handle);
  if (std::none_of(keys.begin(), keys.end(), [key](const char* const& each) { return &each == key; })) {
    throwInvalidArgument("this is no handle of a parameter: use what ncclParamBind returned");
  }
  return *key;
}

std::string_view valueOf(const char* key) {
  const char* value = std::getenv(key);
  return value == nullptr ? "" : value;
}

template <class Number>
ncclResult_t readNumber(const char* function, ncclParamHandle_t handle, Number* out) {
  return guarded(function, [&] {
    requirePointer(out, "out");
    const std::string_view text = valueOf(keyOf(handle));
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), *out);
    if (status == std::errc() && end == text.data() + text.size()) return;
    throwInvalidArgument(std::string(keyOf(handle)) + " is \"" + std::string(text) + "\", no number of this type");
  });
}

/// Keeps a text until the next call of this function in this thread, as NCCL does. Function: to tell them apart.
template <class Function>
const std::string& keepText(std::string_view text) {
  struct Kept {
    std::string text;
  };
  std::string& kept = ThreadValue<Kept>::get().text;
  kept = text;
  return kept;
}
struct GetStr;
struct GetParameter;

}  // namespace

extern "C" {

ncclResult_t ncclParamBind(ncclParamHandle_t* out, const char* key) {
  return guarded("ncclParamBind", [&] {
    requirePointer(out, "out");
    *out = reinterpret_cast<ncclParamHandle_t>(const_cast<const char**>(findKey(key)));
  });
}

ncclResult_t ncclParamGetI8(ncclParamHandle_t h, int8_t* out) {
  return readNumber("ncclParamGetI8", h, out);
}
ncclResult_t ncclParamGetI16(ncclParamHandle_t h, int16_t* out) {
  return readNumber("ncclParamGetI16", h, out);
}
ncclResult_t ncclParamGetI32(ncclParamHandle_t h, int32_t* out) {
  return readNumber("ncclParamGetI32", h, out);
}
ncclResult_t ncclParamGetI64(ncclParamHandle_t h, int64_t* out) {
  return readNumber("ncclParamGetI64", h, out);
}
ncclResult_t ncclParamGetU8(ncclParamHandle_t h, uint8_t* out) {
  return readNumber("ncclParamGetU8", h, out);
}
ncclResult_t ncclParamGetU16(ncclParamHandle_t h, uint16_t* out) {
  return readNumber("ncclParamGetU16", h, out);
}
ncclResult_t ncclParamGetU32(ncclParamHandle_t h, uint32_t* out) {
  return readNumber("ncclParamGetU32", h, out);
}
ncclResult_t ncclParamGetU64(ncclParamHandle_t h, uint64_t* out) {
  return readNumber("ncclParamGetU64", h, out);
}

ncclResult_t ncclParamGetStr(ncclParamHandle_t h, const char** out) {
  return guarded("ncclParamGetStr", [&] {
    requirePointer(out, "out");
    *out = keepText<GetStr>(valueOf(keyOf(h))).c_str();
  });
}

ncclResult_t ncclParamGet(ncclParamHandle_t h, void* out, int maxLen, int* len) {
  return guarded("ncclParamGet", [&] {
    requirePointer(out, "out");
    const std::string_view text = valueOf(keyOf(h));
    if (maxLen < 0 || text.size() > static_cast<std::size_t>(maxLen)) {
      throwInvalidArgument("the value has " + std::to_string(text.size()) + " bytes, maxLen is " +
                           std::to_string(maxLen));
    }
    std::memcpy(out, text.data(), text.size());
    if (len != nullptr) *len = static_cast<int>(text.size());
  });
}

ncclResult_t ncclParamGetParameter(const char* key, const char** value, int* valueLen) {
  return guarded("ncclParamGetParameter", [&] {
    requirePointer(value, "value");
    const std::string& kept = keepText<GetParameter>(valueOf(*findKey(key)));
    *value = kept.c_str();
    if (valueLen != nullptr) *valueLen = static_cast<int>(kept.size());
  });
}

ncclResult_t ncclParamGetAllParameterKeys(const char*** table, int* tableLen) {
  return guarded("ncclParamGetAllParameterKeys", [&] {
    requirePointer(table, "table");
    requirePointer(tableLen, "tableLen");
    thread_local std::array<const char*, keys.size()> copy;
    copy = keys;
    *table = copy.data();
    *tableLen = static_cast<int>(copy.size());
  });
}

void ncclParamDumpAll() {
  static_cast<void>(guarded("ncclParamDumpAll", [] {
    std::string text = "parameters:";
    for (const char* key : keys) text += std::string("\n  ") + key + "=" + std::string(valueOf(key));
    print(text);
  }));
}

[[gnu::alias("ncclParamBind")]] decltype(ncclParamBind) pncclParamBind;
[[gnu::alias("ncclParamGetI8")]] decltype(ncclParamGetI8) pncclParamGetI8;
[[gnu::alias("ncclParamGetI16")]] decltype(ncclParamGetI16) pncclParamGetI16;
[[gnu::alias("ncclParamGetI32")]] decltype(ncclParamGetI32) pncclParamGetI32;
[[gnu::alias("ncclParamGetI64")]] decltype(ncclParamGetI64) pncclParamGetI64;
[[gnu::alias("ncclParamGetU8")]] decltype(ncclParamGetU8) pncclParamGetU8;
[[gnu::alias("ncclParamGetU16")]] decltype(ncclParamGetU16) pncclParamGetU16;
[[gnu::alias("ncclParamGetU32")]] decltype(ncclParamGetU32) pncclParamGetU32;
[[gnu::alias("ncclParamGetU64")]] decltype(ncclParamGetU64) pncclParamGetU64;
[[gnu::alias("ncclParamGetStr")]] decltype(ncclParamGetStr) pncclParamGetStr;
[[gnu::alias("ncclParamGet")]] decltype(ncclParamGet) pncclParamGet;
[[gnu::alias("ncclParamGetParameter")]] decltype(ncclParamGetParameter) pncclParamGetParameter;
[[gnu::alias("ncclParamGetAllParameterKeys")]] decltype(ncclParamGetAllParameterKeys) pncclParamGetAllParameterKeys;
[[gnu::alias("ncclParamDumpAll")]] decltype(ncclParamDumpAll) pncclParamDumpAll;

}  // extern "C"
