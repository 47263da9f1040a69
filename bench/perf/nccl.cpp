// Loads NCCL with dlopen, and the functions of its C API that a measurement needs.
#include "nccl.hpp"

#include <dlfcn.h>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::perf {

namespace {

struct NcclUniqueId {
  char internal[128];
};
using NcclComm = void*;
using NcclWindow = void*;
constexpr int symmetricWindow = 1;

/// NCCL's enumerator of a data type.
int ncclType(DataType type) {
  switch (type) {
    case DataType::INT8:
      return 0;
    case DataType::UINT8:
      return 1;
    case DataType::INT32:
      return 2;
    case DataType::UINT32:
      return 3;
    case DataType::INT64:
      return 4;
    case DataType::UINT64:
      return 5;
    case DataType::FLOAT16:
      return 6;
    case DataType::FLOAT32:
      return 7;
    case DataType::FLOAT64:
      return 8;
    case DataType::BFLOAT16:
      return 9;
    case DataType::FLOAT8_E4M3FN:
      return 10;
    case DataType::FLOAT8_E5M2:
      return 11;
    default:
      throw Error("NCCL has no such data type", ErrorCode::InvalidUsage);
  }
}

}  // namespace

struct Nccl::Library {
  explicit Library(const std::string& path)
      : handle(::dlopen(path.empty() ? "libnccl.so.2" : path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle == nullptr) {
      throw Error(std::string("cannot open NCCL: ") + ::dlerror() + "; set its path with --nccl-library",
                  ErrorCode::InvalidUsage);
    }
    find(getVersion, "ncclGetVersion");
    find(getUniqueId, "ncclGetUniqueId");
    find(commInitRank, "ncclCommInitRank");
    find(commDestroy, "ncclCommDestroy");
    find(allReduce, "ncclAllReduce");
    find(errorString, "ncclGetErrorString");
    find(memAlloc, "ncclMemAlloc", true);
    find(memFree, "ncclMemFree", true);
    find(windowRegister, "ncclCommWindowRegister", true);
    find(windowDeregister, "ncclCommWindowDeregister", true);
  }

  template <class Function>
  void find(Function& function, const char* name, bool optional = false) {
    function = reinterpret_cast<Function>(::dlsym(handle, name));
    if (function == nullptr && !optional) throw Error(std::string("this NCCL has no ") + name, ErrorCode::InvalidUsage);
  }

  void check(int result, const char* what) const {
    if (result != 0) throw Error(std::string(what) + ": " + errorString(result), ErrorCode::SystemError);
  }

  void* handle;  // never closed: NCCL may leave threads running
  int (*getVersion)(int*);
  int (*getUniqueId)(NcclUniqueId*);
  int (*commInitRank)(NcclComm*, int, NcclUniqueId, int);
  int (*commDestroy)(NcclComm);
  int (*allReduce)(const void*, void*, std::size_t, int, int, NcclComm, CUstream_st*);
  const char* (*errorString)(int);
  int (*memAlloc)(void**, std::size_t);
  int (*memFree)(void*);
  int (*windowRegister)(NcclComm, void*, std::size_t, NcclWindow*, int);
  int (*windowDeregister)(NcclComm, NcclWindow);
};

Nccl::Nccl(const std::string& library, Bootstrap& bootstrap) : library_(std::make_shared<Library>(library)) {
  const int ranks = bootstrap.getNranks();
  const int rank = bootstrap.getRank();
  std::vector<NcclUniqueId> ids(static_cast<std::size_t>(ranks));
  if (rank == 0) library_->check(library_->getUniqueId(&ids[0]), "ncclGetUniqueId");
  bootstrap.allGather(ids.data(), sizeof(NcclUniqueId));
  NcclComm communicator = nullptr;
  library_->check(library_->commInitRank(&communicator, ranks, ids[0], rank), "ncclCommInitRank");
  communicator_ = {communicator, [keep = library_](void* c) { keep->commDestroy(c); }};
}
Nccl::~Nccl() = default;

std::string Nccl::version() const {
  int number = 0;
  library_->check(library_->getVersion(&number), "ncclGetVersion");
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." + std::to_string(number % 100);
}

void Nccl::allReduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                     CUstream_st* stream) {
  library_->check(
      library_->allReduce(input, output, count, ncclType(type), static_cast<int>(op), communicator_.get(), stream),
      "ncclAllReduce");
}

std::shared_ptr<void> Nccl::allocateWindow(std::size_t bytes) {
  const auto& l = *library_;
  if (l.memAlloc == nullptr || l.windowRegister == nullptr) return nullptr;
  void* memory = nullptr;
  l.check(l.memAlloc(&memory, bytes), "ncclMemAlloc");
  NcclWindow window = nullptr;
  l.check(l.windowRegister(communicator_.get(), memory, bytes, &window, symmetricWindow), "ncclCommWindowRegister");
  return {memory, [library = library_, communicator = communicator_, window](void* m) {
            if (window != nullptr) library->windowDeregister(communicator.get(), window);
            library->memFree(m);
          }};
}

}  // namespace mscclpp::perf
