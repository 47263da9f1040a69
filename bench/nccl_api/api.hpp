// A library that exports NCCL's C API, loaded by path.
#pragma once

#include <string>

#include "kernels/nccl/functions.hpp"

namespace mscclpp::bench {

/// Its functions, and nothing else of it: it is measured as its users have it.
class NcclApi {
 public:
  /// Throws Error(InvalidUsage) if it cannot be loaded or lacks a function.
  explicit NcclApi(const std::string& path);

  /// Throws Error with the library's explanation unless a call has succeeded.
  void check(ncclResult_t result, const char* call) const;

 private:
  template <class Pointer>
  void load(Pointer& pointer, const char* name) const;

  void* library_;  // never closed: a library may leave threads running

 public:
  decltype(&ncclGetVersion) getVersion = nullptr;
  decltype(&ncclGetErrorString) getErrorString = nullptr;
  decltype(&ncclGetUniqueId) getUniqueId = nullptr;
  decltype(&ncclCommInitRank) commInitRank = nullptr;
  decltype(&ncclCommSplit) commSplit = nullptr;
  decltype(&ncclCommDestroy) commDestroy = nullptr;
  decltype(&ncclAllReduce) allReduce = nullptr;
  decltype(&ncclAllGather) allGather = nullptr;
  decltype(&ncclReduceScatter) reduceScatter = nullptr;
  decltype(&ncclGroupStart) groupStart = nullptr;
  decltype(&ncclGroupEnd) groupEnd = nullptr;
};

}  // namespace mscclpp::bench
