// The compiled all-reduces with work fused in, RMSNorm and quantisation: kernels and scratch are made when a call first
// needs them, and calls that are longer than the scratch are divided.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <utility>

#include "all_reduce_fp8.hpp"
#include "backend.hpp"
#include "kernel_launcher.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"
#include "rms_norm.hpp"

namespace mscclpp::kernels {

/// Communicator, backend and launcher outlive it. run(): by all ranks, the first call for an element type collectively.
/// Throws Error(InvalidUsage) for wrong arguments, and if that first call is captured.
class FusedAllReduces {
 public:
  FusedAllReduces(Communicator& communicator, const Backend& backend, const KernelLauncher& launcher,
                  std::shared_ptr<WaitMonitor> monitor)
      : communicator_(communicator), backend_(backend), launcher_(launcher), monitor_(std::move(monitor)) {}

  void run(const RmsNormCall& call);
  void run(const Fp8Call& call, DataType type);

  std::size_t memoryBytes() const;

 private:
  /// The kernels that make() makes, together with the other ranks, for the first call for an element type.
  template <class Kernels, class Make>
  const Kernels& kernelsFor(std::unique_ptr<Kernels>& kernels, const char* name, CUstream_st* stream, const Make& make);

  Communicator& communicator_;
  const Backend& backend_;
  const KernelLauncher& launcher_;
  std::shared_ptr<WaitMonitor> monitor_;
  std::map<DataType, std::unique_ptr<RmsNormKernels>> rmsNorm_;  ///< those in use
  std::map<DataType, std::unique_ptr<Fp8Kernels>> fp8_;          ///< those in use
};

}  // namespace mscclpp::kernels
