// Loads cuBLAS with dlopen, and the functions of its C API that a measurement needs.
#include "cublas.hpp"

#include <dlfcn.h>

#include <initializer_list>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/cuda/gpu.hpp"

namespace mscclpp::kernels {

namespace {

// Of cuBLAS's ABI.
constexpr int transposed = 1;
constexpr int notTransposed = 0;
constexpr int computeFp32 = 68;
constexpr int defaultAlgorithm = -1;
/// What graphs need on Hopper: without a workspace of the caller's, cuBLAS allocates one for each capture.
constexpr std::size_t workspaceBytes = std::size_t{32} << 20;

}  // namespace

struct Cublas::Library {
  using Create = int (*)(void**);
  using Destroy = int (*)(void*);
  using SetStream = int (*)(void*, cudaStream_t);
  using SetWorkspace = int (*)(void*, void*, std::size_t);
  using GemmEx = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int,
                         const void*, void*, int, int, int, int);

  explicit Library(const std::string& path) {
    for (const char* name : {path.c_str(), "libcublas.so.13", "libcublas.so.12"}) {
      if (handle == nullptr && *name != 0) handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (handle == nullptr) {
      throw Error(std::string("cannot open cuBLAS: ") + ::dlerror() + "; set its path with --cublas-library",
                  ErrorCode::InvalidUsage);
    }
    load("cublasCreate_v2", create);
    load("cublasDestroy_v2", destroy);
    load("cublasSetStream_v2", setStream);
    load("cublasSetWorkspace_v2", setWorkspace);
    load("cublasGemmEx", gemmEx);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() { ::dlclose(handle); }

  template <class Function>
  void load(const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(handle, name));
    if (function == nullptr) throw Error(std::string("this cuBLAS has no ") + name, ErrorCode::InvalidUsage);
  }
  static void check(int status, const char* name) {
    if (status != 0) {
      throw Error(std::string(name) + " failed with status " + std::to_string(status), ErrorCode::InternalError);
    }
  }

  void* handle = nullptr;
  Create create = nullptr;
  Destroy destroy = nullptr;
  SetStream setStream = nullptr;
  SetWorkspace setWorkspace = nullptr;
  GemmEx gemmEx = nullptr;
};

Cublas::Cublas(const std::string& library) : library_(std::make_shared<Library>(library)) {
  void* handle = nullptr;
  Library::check(library_->create(&handle), "cublasCreate");
  handle_ = {handle, [functions = library_](void* created) { functions->destroy(created); }};
  void* memory = nullptr;
  MSCCLPP_CUDATHROW(cudaMalloc(&memory, workspaceBytes));
  workspace_ = {memory, [](void* allocated) { cudaFree(allocated); }};
}

void Cublas::multiply(const void* input, const void* weight, void* output, std::size_t rows, std::size_t width,
                      std::size_t depth, cudaStream_t stream) const {
  const float one = 1.0f, zero = 0.0f;
  const int m = static_cast<int>(width), n = static_cast<int>(rows), k = static_cast<int>(depth);
  Library::check(library_->setStream(handle_.get(), stream), "cublasSetStream");
  Library::check(library_->setWorkspace(handle_.get(), workspace_.get(), workspaceBytes), "cublasSetWorkspace");
  // Its matrices are column-major: the transposes of ours.
  Library::check(library_->gemmEx(handle_.get(), transposed, notTransposed, m, n, k, &one, weight, CUDA_R_16BF, k,
                                  input, CUDA_R_16BF, k, &zero, output, CUDA_R_16BF, m, computeFp32, defaultAlgorithm),
                 "cublasGemmEx");
}

}  // namespace mscclpp::kernels
