// A kernel of a program compiled at run time, loaded on a GPU: its limits, and its launch.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/host/cuda/gpu.hpp"

namespace mscclpp::jit {

namespace detail {

struct LoadedKernel;

/// One argument of a kernel: where it is, and its size in bytes.
struct KernelArgument {
  const void* data;
  std::size_t bytes;
};

}  // namespace detail

/// How Kernel::launch() starts a kernel.
struct KernelLaunch {
  LaunchShape shape;
  cudaStream_t stream = nullptr;
  std::size_t sharedBytes = 0;   ///< dynamic shared memory per block, up to what the device has
  bool overlapPrevious = false;  ///< programmatic dependent launch: the kernel may start before the previous one of the
                                 ///< stream has ended, and calls arch::waitForPrerequisites() as collectiveKernel does
};

/// What the compiled kernel needs, as CUDA reports it.
struct KernelAttributes {
  int maxBlockThreads;
  int registers;          ///< per thread
  int localBytes;         ///< per thread: spilled registers, and arrays that are indexed at run time
  int staticSharedBytes;  ///< per block
};

/// A kernel loaded on the device that was current in Program::kernel(). It can be copied, may outlive its Program, and
/// any thread may call it.
class Kernel {
 public:
  /// For the library: Program::kernel() makes them.
  explicit Kernel(std::shared_ptr<const detail::LoadedKernel> loaded) : loaded_(std::move(loaded)) {}

  /// Enqueues the kernel on launch.stream, which must be a stream of deviceId(); graphs can capture it. The arguments
  /// are copied before it returns; each must have the exact type of the kernel's parameter. Throws Error(InvalidUsage)
  /// if their number or their sizes differ from the parameters', or the shape is outside the limits, and CuError if
  /// CUDA rejects the launch.
  template <class... Arguments>
  void launch(const KernelLaunch& launch, const Arguments&... arguments) const {
    static_assert((std::is_trivially_copyable_v<Arguments> && ...), "arguments of kernels must be trivially copyable");
    const detail::KernelArgument list[] = {{&arguments, sizeof(Arguments)}..., {nullptr, 0}};
    launchWith(launch, {list, sizeof...(Arguments)});
  }

  /// The same with the arguments in one buffer, laid out as the members of a struct: each at the next multiple of its
  /// alignment. For callers that know the types at run time only.
  void launchPacked(const KernelLaunch& launch, std::span<const std::byte> arguments) const;

  KernelAttributes attributes() const;
  int deviceId() const noexcept;

 private:
  void launchWith(const KernelLaunch& launch, std::span<const detail::KernelArgument> arguments) const;

  std::shared_ptr<const detail::LoadedKernel> loaded_;
};

}  // namespace mscclpp::jit
