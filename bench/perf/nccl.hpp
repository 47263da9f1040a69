// NCCL as the baseline of a measurement, loaded at run time: this tool neither requires nor ships it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"

struct CUstream_st;

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
  void allReduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, CUstream_st* stream);
  /// Memory registered as a symmetric window on all ranks, or null if this NCCL has no windows. Collective.
  std::shared_ptr<void> allocateWindow(std::size_t bytes);

 private:
  struct Library;
  std::shared_ptr<Library> library_;
  std::shared_ptr<void> communicator_;
};

}  // namespace mscclpp::perf
