// Loads cuBLAS or cuBLASLt with dlopen, and the functions of their C APIs that a multiplication needs.
#include "cublas.hpp"

#include <dlfcn.h>

#include <compare>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <utility>

#include "host/cuda/gpu_backend.hpp"
#include "host/cuda/gpu_owner.hpp"
#include "kernels/gemm/cublas_fp8.hpp"
#include "kernels/gemm/shared_cublas.hpp"
#include "kernels/gemm/staged_matrix.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/cuda/gpu.hpp"
#include "mscclpp/host/cuda/gpu_memory.hpp"

namespace mscclpp::kernels {

namespace {

// Of cuBLAS's ABI.
constexpr int transposed = 1;
constexpr int notTransposed = 0;
constexpr int computeFp32 = 68;
constexpr int defaultAlgorithm = -1;
// Of cuBLASLt's. Attributes of a multiplication's descriptor:
constexpr int transposeA = 3;                  // CUBLASLT_MATMUL_DESC_TRANSA
constexpr int scalePointerA = 17;              // CUBLASLT_MATMUL_DESC_A_SCALE_POINTER
constexpr int scalePointerB = 18;              // CUBLASLT_MATMUL_DESC_B_SCALE_POINTER
constexpr int fastAccumulationAttribute = 25;  // CUBLASLT_MATMUL_DESC_FAST_ACCUM
constexpr int scaleModeA = 31;                 // CUBLASLT_MATMUL_DESC_A_SCALE_MODE
constexpr int scaleModeB = 32;                 // CUBLASLT_MATMUL_DESC_B_SCALE_MODE
constexpr int outerVectorMode = 3;             // CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F
// Attributes of a search's preferences:
constexpr int maxWorkspaceBytes = 1;             // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
constexpr int leastAlignments[] = {5, 6, 7, 8};  // CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, and of B, C and D

struct Algorithm {  // cublasLtMatmulAlgo_t
  std::uint64_t data[8];
};
struct FoundAlgorithm {  // cublasLtMatmulHeuristicResult_t
  Algorithm algorithm;
  std::size_t workspaceBytes;
  int status;
  float waves;
  int reserved[4];
};
static_assert(sizeof(FoundAlgorithm) == 96);

/// What graphs need on Hopper: without a workspace of the caller's, cuBLAS allocates one for each capture.
constexpr std::size_t workspaceBytes = std::size_t{32} << 20;

void check(int status, const char* name, ErrorCode code = ErrorCode::InternalError) {
  if (status != 0) throw Error(std::string(name) + " failed with status " + std::to_string(status), code);
}

class Library {
 public:
  Library(const char* name, std::initializer_list<const char*> files) : name_(name) {
    for (const char* file : files) {
      if (handle_ == nullptr && *file != 0) handle_ = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
    }
    if (handle_ == nullptr) {
      throw Error(std::string("cannot open ") + name + ": " + ::dlerror() + "; install it, or add its folder to " +
                      "LD_LIBRARY_PATH",
                  ErrorCode::InvalidUsage);
    }
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() { ::dlclose(handle_); }

  template <class Function>
  void load(const char* function, Function& pointer) const {
    pointer = reinterpret_cast<Function>(::dlsym(handle_, function));
    if (pointer == nullptr) throw Error("this " + name_ + " has no " + function, ErrorCode::InvalidUsage);
  }

 private:
  std::string name_;
  void* handle_ = nullptr;
};

using Destroy = int (*)(void*);

/// What create(&object, arguments...) makes, which belongs to the current GPU.
template <class... Parameters, class... Arguments>
std::shared_ptr<void> make(const char* name, int (*create)(void**, Parameters...), Destroy destroy,
                           Arguments... arguments) {
  void* object = nullptr;
  check(create(&object, arguments...), name);
  return {object, [destroy, device = mscclpp::detail::currentGpu()](void* made) {
            mscclpp::detail::freeOnGpu(device, [&] { destroy(made); });
          }};
}

struct GemmSize {
  std::size_t rows, width, depth;
  auto operator<=>(const GemmSize&) const = default;
};

struct CublasFunctions {
  explicit CublasFunctions(const std::string& path)
      : library("cuBLAS", {path.c_str(), "libcublas.so.13", "libcublas.so.12"}) {
    library.load("cublasCreate_v2", create);
    library.load("cublasDestroy_v2", destroy);
    library.load("cublasSetStream_v2", setStream);
    library.load("cublasSetWorkspace_v2", setWorkspace);
    library.load("cublasGemmEx", gemmEx);
  }

  Library library;
  int (*create)(void**) = nullptr;
  Destroy destroy = nullptr;
  int (*setStream)(void*, cudaStream_t) = nullptr;
  int (*setWorkspace)(void*, void*, std::size_t) = nullptr;
  int (*gemmEx)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*,
                void*, int, int, int, int) = nullptr;
};

struct CublasLtFunctions {
  /// path: of cuBLASLt, or of cuBLAS, which depends on it and so finds its functions.
  explicit CublasLtFunctions(const std::string& path)
      : library("cuBLASLt", {path.c_str(), "libcublasLt.so.13", "libcublasLt.so.12"}) {
    library.load("cublasLtCreate", create);
    library.load("cublasLtDestroy", destroy);
    library.load("cublasLtMatmul", matmul);
    library.load("cublasLtMatmulAlgoGetHeuristic", findAlgorithms);
    library.load("cublasLtMatmulDescCreate", createDescriptor);
    library.load("cublasLtMatmulDescDestroy", destroyDescriptor);
    library.load("cublasLtMatmulDescSetAttribute", setDescriptorAttribute);
    library.load("cublasLtMatmulPreferenceCreate", createPreference);
    library.load("cublasLtMatmulPreferenceDestroy", destroyPreference);
    library.load("cublasLtMatmulPreferenceSetAttribute", setPreferenceAttribute);
    library.load("cublasLtMatrixLayoutCreate", createLayout);
    library.load("cublasLtMatrixLayoutDestroy", destroyLayout);
  }

  using SetAttribute = int (*)(void*, int, const void*, std::size_t);

  Library library;
  int (*create)(void**) = nullptr;
  Destroy destroy = nullptr;
  int (*matmul)(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*,
                void*, void*, const Algorithm*, void*, std::size_t, cudaStream_t) = nullptr;
  int (*findAlgorithms)(void*, void*, void*, void*, void*, void*, void*, int, FoundAlgorithm*, int*) = nullptr;
  int (*createDescriptor)(void**, int, int) = nullptr;
  Destroy destroyDescriptor = nullptr;
  SetAttribute setDescriptorAttribute = nullptr;
  int (*createPreference)(void**) = nullptr;
  Destroy destroyPreference = nullptr;
  SetAttribute setPreferenceAttribute = nullptr;
  int (*createLayout)(void**, int, std::uint64_t, std::uint64_t, std::int64_t) = nullptr;
  Destroy destroyLayout = nullptr;
};

}  // namespace

// The matrices of cuBLAS are column-major, the transposes of ours: its A is the weight, its B the input.

class Cublas::Bf16 {
 public:
  explicit Bf16(const std::string& path)
      : cublas_(path),
        handle_(make("cublasCreate", cublas_.create, cublas_.destroy)),
        workspace_(mscclpp::detail::gpuCallocUnique<std::byte>(workspaceBytes)) {}

  void multiply(const void* input, const void* weight, void* output, const GemmSize& size, cudaStream_t stream) const {
    const float one = 1.0f, zero = 0.0f;
    const int m = static_cast<int>(size.width), n = static_cast<int>(size.rows), k = static_cast<int>(size.depth);
    check(cublas_.setStream(handle_.get(), stream), "cublasSetStream");
    check(cublas_.setWorkspace(handle_.get(), workspace_.get(), workspaceBytes), "cublasSetWorkspace");
    check(cublas_.gemmEx(handle_.get(), transposed, notTransposed, m, n, k, &one, weight, CUDA_R_16BF, k, input,
                         CUDA_R_16BF, k, &zero, output, CUDA_R_16BF, m, computeFp32, defaultAlgorithm),
          "cublasGemmEx");
  }

 private:
  CublasFunctions cublas_;
  std::shared_ptr<void> handle_;
  mscclpp::detail::UniqueGpuPtr<std::byte> workspace_;
};

class Cublas::Fp8 {
 public:
  Fp8(const std::string& path, bool fastAccumulation)
      : lt_(path),
        handle_(make("cublasLtCreate", lt_.create, lt_.destroy)),
        workspace_(mscclpp::detail::gpuCallocUnique<std::byte>(workspaceBytes)) {
    preference_ = make("cublasLtMatmulPreferenceCreate", lt_.createPreference, lt_.destroyPreference);
    prefer(maxWorkspaceBytes, std::uint64_t{workspaceBytes});
    for (const int attribute : leastAlignments) prefer(attribute, cublasFp8Alignment);
    descriptor_ =
        make("cublasLtMatmulDescCreate", lt_.createDescriptor, lt_.destroyDescriptor, computeFp32, CUDA_R_32F);
    describe(transposeA, std::int32_t{transposed});
    describe(fastAccumulationAttribute, std::int8_t{fastAccumulation});
    // cuBLASLt before CUDA 12.9 does not have the mode.
    describe(scaleModeA, std::int32_t{outerVectorMode}, ErrorCode::InvalidUsage);
    describe(scaleModeB, std::int32_t{outerVectorMode}, ErrorCode::InvalidUsage);
    // Whether this GPU has the mode shows only when an algorithm is searched for, which reads no scale.
    const auto* const anyScales = reinterpret_cast<const float*>(workspace_.get());
    setScales({anyScales, anyScales});
    planFor({128, 128, 128});
  }

  /// Arrays at multiples of cublasFp8Alignment, and a width and depth that are multiples of cublasFp8Multiple.
  void multiply(const void* input, const void* weight, void* output, const GemmSize& size, cudaStream_t stream,
                Scales scales) {
    const float one = 1.0f, zero = 0.0f;
    setScales(scales);
    const Plan& plan = planFor(size);
    check(lt_.matmul(handle_.get(), descriptor_.get(), &one, weight, plan.weight.get(), input, plan.input.get(), &zero,
                     output, plan.output.get(), output, plan.output.get(), &plan.algorithm, workspace_.get(),
                     workspaceBytes, stream),
          "cublasLtMatmul");
  }

  void prepare(const GemmSize& size) { planFor(size); }

 private:
  struct Plan {
    std::shared_ptr<void> weight, input, output;  ///< their layouts
    Algorithm algorithm;
  };

  /// Throws Error(InvalidUsage) if there is no algorithm.
  const Plan& planFor(const GemmSize& size) {
    const auto known = plans_.find(size);
    if (known != plans_.end()) return known->second;
    const auto layoutOf = [&](cudaDataType type, std::size_t rows, std::size_t columns) {
      return make("cublasLtMatrixLayoutCreate", lt_.createLayout, lt_.destroyLayout, type, columns, rows,
                  static_cast<std::int64_t>(columns));
    };
    Plan plan{.weight = layoutOf(CUDA_R_8F_E4M3, size.width, size.depth),
              .input = layoutOf(CUDA_R_8F_E4M3, size.rows, size.depth),
              .output = layoutOf(CUDA_R_16BF, size.rows, size.width),
              .algorithm = {}};
    FoundAlgorithm found{};
    int count = 0;
    const int status = lt_.findAlgorithms(handle_.get(), descriptor_.get(), plan.weight.get(), plan.input.get(),
                                          plan.output.get(), plan.output.get(), preference_.get(), 1, &found, &count);
    if (status != 0 || count == 0 || found.status != 0) {
      throw Error("cuBLASLt has no multiplication of " + std::to_string(size.rows) + " x " +
                      std::to_string(size.depth) + " by " + std::to_string(size.depth) + " x " +
                      std::to_string(size.width) + " elements of fp8 with scales for rows and columns on this GPU " +
                      "(status " + std::to_string(status != 0 ? status : found.status) + ")",
                  ErrorCode::InvalidUsage);
    }
    plan.algorithm = found.algorithm;
    return plans_.emplace(size, std::move(plan)).first->second;
  }

  void setScales(Scales scales) {
    describe(scalePointerA, scales.weight);
    describe(scalePointerB, scales.input);
  }
  template <class T>
  void describe(int attribute, T value, ErrorCode onFailure = ErrorCode::InternalError) {
    check(lt_.setDescriptorAttribute(descriptor_.get(), attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute", onFailure);
  }
  template <class T>
  void prefer(int attribute, T value) {
    check(lt_.setPreferenceAttribute(preference_.get(), attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  }

  CublasLtFunctions lt_;
  std::shared_ptr<void> handle_;
  mscclpp::detail::UniqueGpuPtr<std::byte> workspace_;
  std::shared_ptr<void> preference_, descriptor_;  ///< of a search, and of the multiplications of all sizes
  std::map<GemmSize, Plan> plans_;                 ///< of the sizes that calls have had
};

Cublas::Cublas(const std::string& library, DataType operands, bool fastAccumulation) : operands_(operands) {
  if (operands == DataType::BFLOAT16) {
    bf16_ = std::make_shared<Bf16>(library);
  } else if (operands == DataType::FLOAT8_E4M3FN) {
    fp8_ = std::make_shared<Fp8>(library, fastAccumulation);
  } else {
    throw Error(std::string("GEMMs of cuBLAS: data type ") + nameOf(operands) + " is not supported",
                ErrorCode::InvalidUsage);
  }
}

void Cublas::prepare(std::size_t rows, std::size_t width, std::size_t depth) const {
  if (fp8_ != nullptr) fp8_->prepare({rows, roundUp(width, cublasFp8Multiple), roundUp(depth, cublasFp8Multiple)});
}

void Cublas::multiply(const void* input, const void* weight, void* output, std::size_t rows, std::size_t width,
                      std::size_t depth, cudaStream_t stream, Scales scales) const {
  if (bf16_ != nullptr) return bf16_->multiply(input, weight, output, {rows, width, depth}, stream);
  const GemmSize size{rows, roundUp(width, cublasFp8Multiple), roundUp(depth, cublasFp8Multiple)};
  const std::size_t elementBytes = sizeOf(operands_), outputBytes = sizeOf(DataType::BFLOAT16);
  const StagedMatrix inputs(Staging::Input, input, {rows, depth}, {rows, size.depth}, elementBytes, stream);
  const StagedMatrix weights(Staging::Input, weight, {width, depth}, {size.width, size.depth}, elementBytes, stream);
  const StagedMatrix inputScales(Staging::Input, scales.input, {1, rows}, {1, rows}, sizeof(float), stream);
  const StagedMatrix weightScales(Staging::Input, scales.weight, {1, width}, {1, size.width}, sizeof(float), stream);
  const StagedMatrix outputs(Staging::Output, output, {rows, width}, {rows, size.width}, outputBytes, stream);
  fp8_->multiply(inputs.data(), weights.data(), outputs.data(), size, stream,
                 {static_cast<const float*>(inputScales.data()), static_cast<const float*>(weightScales.data())});
  outputs.copyBack();
}

std::shared_ptr<const Cublas> SharedCublas::get(DataType operands, bool fastAccumulation) {
  std::weak_ptr<const Cublas>& made = made_[{operands, fastAccumulation}];
  std::shared_ptr<const Cublas> cublas = made.lock();
  if (cublas == nullptr) made = cublas = std::make_shared<const Cublas>("", operands, fastAccumulation);
  return cublas;
}

}  // namespace mscclpp::kernels
