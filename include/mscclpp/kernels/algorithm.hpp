// Algorithms as objects: a collective that users can register, select and execute, their own or the library's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "mscclpp/basic/data_type.hpp"

struct CUstream_st;

namespace mscclpp {

class Communicator;
class Executor;

/// Which placement of the output an algorithm supports.
enum class CollectiveBufferMode { Any, InPlace, OutOfPlace };

/// How an algorithm is written: as kernels, or as an execution plan.
enum class AlgorithmType { Native, DSL };

/// The result of Algorithm::execute, with NCCL's values.
enum class CommResult {
  CommSuccess = 0,
  CommUnhandledCudaError = 1,
  CommSystemError = 2,
  CommInternalError = 3,    ///< also an exception of a user's function that is none of the library's
  CommInvalidArgument = 4,  ///< of this call
  CommInvalidUsage = 5,     ///< the algorithm cannot run here, or not now
  CommRemoteError = 6,      ///< another rank failed or did not arrive in time, or the communicator was aborted
  CommInProgress = 7,
  CommNumResults = 8
};

/// A collective algorithm. Collectives have the names "allreduce", "allgather", "reducescatter", "alltoall",
/// "broadcast", "reduce", "gather", "scatter" and "sendrecv"; users may add others.
///
/// The size of a message, by which algorithms are selected, is that of the output for "reducescatter", "scatter" and
/// "broadcast", a rank's part of the input for "alltoall", the larger of both for "sendrecv", and that of the input
/// for all others: of the ranks' messages, not of their sum, and the same on all ranks.
///
/// Thread safety: execute() may run on different communicators at once, also where their ranks are threads that share
/// the object, and beside the accessors. Calls on one communicator are ordered by the caller. setMessageSizeRange()
/// must not overlap with other calls.
class Algorithm {
 public:
  /// What an algorithm is made for; 0 stands for any number.
  struct Constraint {
    int worldSize = 0;      ///< ranks
    int nRanksPerNode = 0;  ///< ranks per host
  };

  virtual ~Algorithm() = default;

  virtual const std::string& name() const = 0;
  virtual const std::string& collective() const = 0;
  /// The shortest and the longest message, in bytes.
  virtual const std::pair<std::size_t, std::size_t>& messageRange() const = 0;
  /// What the author says about the algorithm, for selectors. The library's algorithms that need `symmetricMemory` of
  /// execute() have the tag "symmetricMemory".
  virtual const std::unordered_map<std::string, std::uint64_t>& tags() const = 0;
  virtual const CollectiveBufferMode& bufferMode() const = 0;
  virtual AlgorithmType type() const = 0;
  virtual Constraint constraint() const = 0;

  /// Sets messageRange(), in bytes. Throws Error(InvalidUsage) if the minimum exceeds the maximum.
  virtual void setMessageSizeRange(std::size_t minMessageSize, std::size_t maxMessageSize) = 0;

  /// Performs the collective: on GPUs enqueues it on `stream`, on CPUs returns when it is done. Called by all ranks of
  /// the communicator, in the same order as their other collectives. inputSize, outputSize: bytes. The first call on a
  /// communicator sets the algorithm up, which all ranks do together.
  ///
  /// executor: of execution plans, else null. nBlocks, nThreads: the launch; 0: the algorithm chooses. symmetricMemory,
  /// the same on all ranks: every rank's output is at the same offset in an allocation that every rank made alike, so
  /// that the others may write it directly (docs/algorithms.md says when the library's algorithms do, and until when
  /// the memory is not freed). extras: further arguments by name. accumDtype: the type to reduce in; AUTO: the
  /// algorithm chooses.
  ///
  /// Throws nothing. Any result but CommSuccess is logged with a sentence (LogSubsystem::Algo). On GPUs a wait that
  /// fails in the kernel is reported by the next call.
  virtual CommResult execute(std::shared_ptr<Communicator> communicator, const void* input, void* output,
                             std::size_t inputSize, std::size_t outputSize, DataType dtype, ReduceOp op,
                             CUstream_st* stream, std::shared_ptr<Executor> executor, int nBlocks = 0, int nThreads = 0,
                             bool symmetricMemory = false,
                             const std::unordered_map<std::string, std::uintptr_t>& extras = {},
                             DataType accumDtype = DataType::AUTO) = 0;

  /// Releases what execute() keeps between calls, of all communicators. The kernels of earlier calls have ended on all
  /// ranks, and captured graphs with such calls are not replayed any more.
  virtual void reset() = 0;
};

/// What an algorithm says of itself.
struct AlgorithmDescription {
  std::string name;
  std::string collective;
  std::pair<std::size_t, std::size_t> messageRange = {0, SIZE_MAX};
  CollectiveBufferMode bufferMode = CollectiveBufferMode::Any;
  std::unordered_map<std::string, std::uint64_t> tags = {};
  Algorithm::Constraint constraint = {};
};

/// An algorithm that keeps its description: what the library's kinds of algorithms have in common.
class DescribedAlgorithm : public Algorithm {
 public:
  const std::string& name() const override { return description_.name; }
  const std::string& collective() const override { return description_.collective; }
  const std::pair<std::size_t, std::size_t>& messageRange() const override { return description_.messageRange; }
  const std::unordered_map<std::string, std::uint64_t>& tags() const override { return description_.tags; }
  const CollectiveBufferMode& bufferMode() const override { return description_.bufferMode; }
  Constraint constraint() const override { return description_.constraint; }
  void setMessageSizeRange(std::size_t minMessageSize, std::size_t maxMessageSize) override;

 protected:
  /// Throws Error(InvalidUsage) for an empty name or collective, or a minimum above the maximum.
  explicit DescribedAlgorithm(AlgorithmDescription description);

 private:
  AlgorithmDescription description_;
};

/// The name of the PyCapsule in which a Python module passes on a std::shared_ptr<Algorithm>.
inline constexpr const char* ALGORITHM_NATIVE_CAPSULE_NAME = "mscclpp::AlgorithmPtr";

/// Makes an algorithm.
class AlgorithmBuilder {
 public:
  virtual ~AlgorithmBuilder() = default;
  virtual std::shared_ptr<Algorithm> build() = 0;
};

/// What a context of a NativeAlgorithm is for: calls with equal keys share one.
struct AlgorithmCtxKey {
  void* baseSendBuff = nullptr;
  void* baseRecvBuff = nullptr;
  std::size_t baseSendSize = 0;
  std::size_t baseRecvSize = 0;
  int tag = 0;

  friend bool operator==(const AlgorithmCtxKey&, const AlgorithmCtxKey&) = default;
};

namespace detail {

using AlgorithmExtras = std::unordered_map<std::string, std::uintptr_t>;

/// The functions of a NativeAlgorithm as earlier versions of MSCCL++ had them: without their last argument.
template <class F>
concept EarlierKernelFunc = std::is_invocable_r_v < CommResult,
        const F&, std::shared_ptr<void>,
const void*, void*, std::size_t, std::size_t, DataType, ReduceOp, CUstream_st*, int, int, const AlgorithmExtras& > ;
template <class F>
concept EarlierContextKeyGenFunc =
    std::is_invocable_r_v<AlgorithmCtxKey, const F&, const void*, void*, std::size_t, std::size_t, DataType>;

}  // namespace detail

/// An algorithm of functions: the way to register a kernel of one's own. What its calls need, such as scratch and
/// channels, is a context of the user's type. There is one for each communicator and key; it lives until reset(), until
/// the algorithm is destroyed, or until the communicator is gone and another one is used.
class NativeAlgorithm : public DescribedAlgorithm {
 public:
  /// Called once for each communicator, before its first context is made. May communicate; may be empty.
  using InitFunc = std::function<void(std::shared_ptr<Communicator>)>;
  /// Starts the kernel. Sizes are bytes. `context` is what ContextInitFunc returned for the key of this call.
  using KernelFunc = std::function<CommResult(
      const std::shared_ptr<void> context, const void* input, void* output, std::size_t inputSize,
      std::size_t outputSize, DataType dtype, ReduceOp op, CUstream_st* stream, int nBlocks, int nThreads,
      const std::unordered_map<std::string, std::uintptr_t>& extras, DataType accumDtype)>;
  /// Makes a context. Called by the first execute() with a key; since all ranks make theirs together, it may
  /// communicate. If it is empty, contexts are null.
  using ContextInitFunc =
      std::function<std::shared_ptr<void>(std::shared_ptr<Communicator> communicator, const void* input, void* output,
                                          std::size_t inputSize, std::size_t outputSize, DataType dtype)>;
  /// The key of a call. A key is new on all ranks or on none, if making a context communicates. Empty: one key.
  using ContextKeyGenFunc =
      std::function<AlgorithmCtxKey(const void* input, void* output, std::size_t inputSize, std::size_t outputSize,
                                    DataType dtype, bool symmetricMemory)>;

  /// Throws Error(InvalidUsage) for an empty name, collective or kernel function, or a minimum above the maximum.
  NativeAlgorithm(std::string name, std::string collective, InitFunc initFunc, KernelFunc kernelFunc,
                  ContextInitFunc contextInitFunc, ContextKeyGenFunc contextKeyGenFunc, std::size_t minMessageSize = 0,
                  std::size_t maxMessageSize = UINT64_MAX, CollectiveBufferMode bufferMode = CollectiveBufferMode::Any,
                  std::unordered_map<std::string, std::uint64_t> tags = {}, Constraint constraint = {});
  /// The same for programs of earlier versions of MSCCL++, whose functions have no accumDtype and no symmetricMemory.
  template <detail::EarlierKernelFunc Kernel, detail::EarlierContextKeyGenFunc Key>
  requires(!std::is_constructible_v<KernelFunc, Kernel>)
      NativeAlgorithm(std::string name, std::string collective, InitFunc initFunc, Kernel kernelFunc,
                      ContextInitFunc contextInitFunc, Key contextKeyGenFunc, std::size_t minMessageSize = 0,
                      std::size_t maxMessageSize = UINT64_MAX,
                      CollectiveBufferMode bufferMode = CollectiveBufferMode::Any,
                      std::unordered_map<std::string, std::uint64_t> tags = {}, Constraint constraint = {})
      : NativeAlgorithm(std::move(name), std::move(collective), std::move(initFunc),
                        KernelFunc([kernelFunc](const std::shared_ptr<void> context, const void* input, void* output,
                                                std::size_t inputSize, std::size_t outputSize, DataType dtype,
                                                ReduceOp op, CUstream_st* stream, int nBlocks, int nThreads,
                                                const detail::AlgorithmExtras& extras, DataType) {
                          return kernelFunc(context, input, output, inputSize, outputSize, dtype, op, stream, nBlocks,
                                            nThreads, extras);
                        }),
                        std::move(contextInitFunc),
                        ContextKeyGenFunc([contextKeyGenFunc](const void* input, void* output, std::size_t inputSize,
                                                              std::size_t outputSize, DataType dtype, bool) {
                          return contextKeyGenFunc(input, output, inputSize, outputSize, dtype);
                        }),
                        minMessageSize, maxMessageSize, bufferMode, std::move(tags), constraint) {}
  ~NativeAlgorithm() override;
  NativeAlgorithm(const NativeAlgorithm&) = delete;
  NativeAlgorithm& operator=(const NativeAlgorithm&) = delete;

  AlgorithmType type() const override { return AlgorithmType::Native; }

  /// Refuses a null communicator, and what does not agree with constraint(), messageRange() and bufferMode(); else
  /// returns the kernel function's result. Exceptions of the functions become results.
  CommResult execute(std::shared_ptr<Communicator> communicator, const void* input, void* output, std::size_t inputSize,
                     std::size_t outputSize, DataType dtype, ReduceOp op, CUstream_st* stream,
                     std::shared_ptr<Executor> executor, int nBlocks = 0, int nThreads = 0,
                     bool symmetricMemory = false, const std::unordered_map<std::string, std::uintptr_t>& extras = {},
                     DataType accumDtype = DataType::AUTO) override;
  void reset() override;

 private:
  class Contexts;

  InitFunc initFunc_;
  KernelFunc kernelFunc_;
  ContextInitFunc contextInitFunc_;
  ContextKeyGenFunc contextKeyGenFunc_;
  std::unique_ptr<Contexts> contexts_;
};

}  // namespace mscclpp

template <>
struct std::hash<mscclpp::AlgorithmCtxKey> {
  std::size_t operator()(const mscclpp::AlgorithmCtxKey& key) const noexcept;
};
