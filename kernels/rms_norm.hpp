// The compiled all-reduces with RMSNorm: scratch for both patterns, and the kernels of a backend for an element type.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/fusion/all_reduce_rms_norm.hpp"
#include "mscclpp/host/communicator/collective_state.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/kernels/rms_norm_call.hpp"

namespace mscclpp::kernels {

/// The kernels for an element type, with their scratch on all ranks.
class RmsNormKernels {
 public:
  RmsNormKernels() = default;
  RmsNormKernels(const RmsNormKernels&) = delete;
  RmsNormKernels& operator=(const RmsNormKernels&) = delete;
  virtual ~RmsNormKernels() = default;

  /// The contribution of a rank to one kernel has at most so many bytes: there is scratch for them.
  virtual std::size_t capacity() const = 0;
  /// The memory that was allocated on this rank.
  virtual std::size_t memoryBytes() const = 0;
  /// Runs the call (CPU) or enqueues it (GPU), which has at most capacity() bytes. Returns 0 or a cudaError_t.
  virtual int run(const RmsNormCall& call, int maxBlocks, KernelStart start) const = 0;
};

/// The same for elements T and a backend, which has the DeviceType `where`, the bytes `capacity`, the template
/// Collective<T, pattern>, and template <class T, Pattern pattern> static int run(state, call, maxBlocks, start).
template <class T, class Backend>
class RmsNormKernelsOf : public RmsNormKernels {
  template <Pattern pattern>
  using State = CollectiveState<typename Backend::template Collective<T, pattern>>;

 public:
  /// Called by all ranks.
  RmsNormKernelsOf(Communicator& communicator, const std::shared_ptr<WaitMonitor>& monitor)
      : ranks_(communicator.bootstrap()->getNranks()) {
    oneShot_ = make<Pattern::OneShot>(communicator, longestOneShot(), monitor);
    if (betterRmsNormPattern(Backend::capacity, ranks_) == Pattern::TwoShot) {
      twoShot_ = make<Pattern::TwoShot>(communicator, Backend::capacity, monitor);
    }
  }

  std::size_t capacity() const override { return Backend::capacity; }
  std::size_t memoryBytes() const override {
    return oneShot_->memoryBytes() + (twoShot_ == nullptr ? 0 : twoShot_->memoryBytes());
  }

  int run(const RmsNormCall& call, int maxBlocks, KernelStart start) const override {
    const std::size_t bytes = call.rows * call.hidden * sizeof(T);
    return betterRmsNormPattern(bytes, ranks_) == Pattern::OneShot
               ? Backend::template run<T, Pattern::OneShot>(*oneShot_, call, maxBlocks, start)
               : Backend::template run<T, Pattern::TwoShot>(*twoShot_, call, maxBlocks, start);
  }

 private:
  template <Pattern pattern>
  static auto make(Communicator& communicator, std::size_t bytes, const std::shared_ptr<WaitMonitor>& monitor) {
    return std::make_unique<State<pattern>>(communicator, Backend::where, bytes / sizeof(T), PipelineShape{}, monitor);
  }
  /// Bytes of which messages for which one-shot is the better pattern have no more; at most twice theirs.
  std::size_t longestOneShot() const {
    std::size_t bytes = Backend::capacity;
    while (betterRmsNormPattern(bytes, ranks_) != Pattern::OneShot) bytes /= 2;
    return std::min(bytes * 2, Backend::capacity);
  }

  int ranks_;
  std::unique_ptr<State<Pattern::OneShot>> oneShot_;
  std::unique_ptr<State<Pattern::TwoShot>> twoShot_;
};

/// Throws Error(InvalidUsage) for wrong arguments; returns whether there is anything to do.
bool requireValid(const RmsNormCall& call);
/// The same but for the input, which a call of another operation may lack. name: how errors begin.
void requireValidNorm(const RmsNormCall& call, const std::string& name);

template <class T>
RmsNormArrays<T> arraysOf(const RmsNormCall& call) {
  return {.weight = static_cast<const T*>(call.weight),
          .epsilon = call.epsilon,
          .residual = static_cast<const T*>(call.residual),
          .newResidual = static_cast<T*>(call.newResidual),
          .normalised = static_cast<T*>(call.normalised),
          .quantised = call.quantised,
          .scales = call.scales,
          .scale = call.scale};
}

/// The element types whose rows can be quantised.
template <class T>
inline constexpr bool quantisesRows = sizeof(T) == 2;

/// Calls f with the quantisation, which is not None, as a template argument.
template <class F>
int visitQuantisation(Quantisation quantisation, const F& f) {
  switch (quantisation) {
    case Quantisation::Fp8Static:
      return f.template operator()<Quantisation::Fp8Static>();
    case Quantisation::Fp8PerRow:
      return f.template operator()<Quantisation::Fp8PerRow>();
    case Quantisation::Fp8PerGroup:
      return f.template operator()<Quantisation::Fp8PerGroup>();
    default:
      return f.template operator()<Quantisation::Int8PerRow>();
  }
}

/// The arguments of a collective for a call, from the state of another one with the same scratch.
template <class Variant, int ranks, class C>
typename Variant::Args argsFor(const CollectiveState<C>& state, const RmsNormCall& call) {
  const auto general = state.args(call.rows * call.hidden);
  typename Variant::Args args{};
  args.team = Team<ranks>(general.team.rank(), general.team.size());
  args.window = makeWindow<ranks>(general.window.base, general.team.size());
  args.epochs = general.epochs;
  args.scratch = general.scratch;
  args.count = general.count;
  args.wait = general.wait;
  args.hidden = call.hidden;
  return args;
}

// Of each backend: the kernels for elements T. Called by all ranks.
namespace gpu {
template <class T>
std::unique_ptr<RmsNormKernels> makeRmsNorm(Communicator& communicator, const std::shared_ptr<WaitMonitor>& monitor);
}  // namespace gpu
namespace cpu {
template <class T>
std::unique_ptr<RmsNormKernels> makeRmsNorm(Communicator& communicator, const std::shared_ptr<WaitMonitor>& monitor);
}  // namespace cpu

}  // namespace mscclpp::kernels
