// NCCL as the baseline of a measurement, loaded at run time: this tool neither requires nor ships it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/kernels/collective_call.hpp"

namespace mscclpp::perf {

/// An NCCL communicator over the ranks of a bootstrap. Throws Error if the library cannot be opened or a call fails.
class Nccl {
 public:
  /// library: a path, or empty to search libnccl.so.2 on the loader's path.
  Nccl(const std::string& library, Bootstrap& bootstrap);
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  /// "2.28.9"
  std::string version() const;
  /// Enqueues the same call with NCCL; the algorithm is not used. An all-to-all, gather or scatter is a group of sends
  /// and receives where this NCCL has no function for it.
  void run(const CollectiveCall& call);
  /// The same for several calls as a group, which NCCL enqueues together.
  void run(std::span<const CollectiveCall> calls);
  /// Memory registered as a symmetric window on all ranks, or null if this NCCL has no windows. Collective.
  std::shared_ptr<void> allocateWindow(std::size_t bytes);

 private:
  void runAsGroup(const CollectiveCall& call);

  struct Library;
  std::shared_ptr<Library> library_;
  std::shared_ptr<void> communicator_;
  int rank_;
  int ranks_;
};

}  // namespace mscclpp::perf
