// cuBLAS, through the few functions of its C API that a measurement needs.
#include <dlfcn.h>

#include "gemm.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/cuda/gpu.hpp"

namespace mscclpp::cutlassbench {

namespace {

// Enumerators of cuBLAS and of the CUDA toolkit.
constexpr int transpose = 1, noTranspose = 0;
constexpr int bfloat16 = 14;
constexpr int computeFloat = 68;
constexpr int defaultAlgorithm = -1;
constexpr std::size_t workspaceBytes = 32 << 20;  // what cuBLAS recommends on Hopper

void check(int status, const char* what) {
  if (status != 0) {
    throw Error(std::string(what) + " returned status " + std::to_string(status), ErrorCode::InternalError);
  }
}

}  // namespace

struct CuBlas::Functions {
  using Create = int (*)(void**);
  using Destroy = int (*)(void*);
  using SetStream = int (*)(void*, cudaStream_t);
  using SetWorkspace = int (*)(void*, void*, std::size_t);
  using GemmEx = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int,
                         const void*, void*, int, int, int, int);

  explicit Functions(const std::string& library) {
    const std::string name = library.empty() ? "libcublas.so.13" : library;
    void* const handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw Error("cannot open cuBLAS: " + std::string(::dlerror()), ErrorCode::InvalidUsage);
    const auto load = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(handle, symbol));
      if (function == nullptr) throw Error(name + " has no " + symbol, ErrorCode::InvalidUsage);
    };
    load(create, "cublasCreate_v2");
    load(destroy, "cublasDestroy_v2");
    load(setStream, "cublasSetStream_v2");
    load(setWorkspace, "cublasSetWorkspace_v2");
    load(gemmEx, "cublasGemmEx");
  }

  Create create;
  Destroy destroy;
  SetStream setStream;
  SetWorkspace setWorkspace;
  GemmEx gemmEx;
};

CuBlas::CuBlas(const std::string& library) : functions_(std::make_unique<Functions>(library)) {
  check(functions_->create(&handle_), "cublasCreate");
  MSCCLPP_CUDATHROW(cudaMalloc(&workspace_, workspaceBytes));
}

CuBlas::~CuBlas() {
  functions_->destroy(handle_);
  cudaFree(workspace_);
}

void CuBlas::enqueue(const Problem& problem, cudaStream_t stream) const {
  check(functions_->setStream(handle_, stream), "cublasSetStream");
  // The stream's own memory cannot be allocated while a graph is captured.
  check(functions_->setWorkspace(handle_, workspace_, workspaceBytes), "cublasSetWorkspace");
  const float one = 1.0f, zero = 0.0f;
  // In columns: out^T = b * a^T.
  check(functions_->gemmEx(handle_, transpose, noTranspose, problem.n, problem.m, problem.k, &one, problem.b, bfloat16,
                           problem.k, problem.a, bfloat16, problem.k, &zero, problem.out, bfloat16, problem.n,
                           computeFloat, defaultAlgorithm),
        "cublasGemmEx");
}

}  // namespace mscclpp::cutlassbench
