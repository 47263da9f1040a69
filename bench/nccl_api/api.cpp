#include "api.hpp"

#include <dlfcn.h>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::bench {

NcclApi::NcclApi(const std::string& path) : library_(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr) throw Error(std::string("cannot load the library: ") + ::dlerror(), ErrorCode::InvalidUsage);
  load(getVersion, "ncclGetVersion");
  load(getErrorString, "ncclGetErrorString");
  load(getUniqueId, "ncclGetUniqueId");
  load(commInitRank, "ncclCommInitRank");
  load(commSplit, "ncclCommSplit");
  load(commDestroy, "ncclCommDestroy");
  load(allReduce, "ncclAllReduce");
  load(allGather, "ncclAllGather");
  load(reduceScatter, "ncclReduceScatter");
  load(groupStart, "ncclGroupStart");
  load(groupEnd, "ncclGroupEnd");
}

template <class Pointer>
void NcclApi::load(Pointer& pointer, const char* name) const {
  pointer = reinterpret_cast<Pointer>(::dlsym(library_, name));
  if (pointer == nullptr) throw Error(std::string("the library has no ") + name, ErrorCode::InvalidUsage);
}

void NcclApi::check(ncclResult_t result, const char* call) const {
  if (result != ncclSuccess) throw Error(std::string(call) + ": " + getErrorString(result), ErrorCode::SystemError);
}

}  // namespace mscclpp::bench
