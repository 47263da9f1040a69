// The fused GEMMs of a group, for calls of any size. Exported, for the module of PyTorch's operators.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "mscclpp/kernels/fused_gemm.hpp"

namespace mscclpp::python {

/// Fused GEMMs on one kind of device, made as calls need them and kept. One thread at a time calls an object.
class [[gnu::visibility("default")]] FusedGemms {
 public:
  /// collectives: makeFusedGemm()'s, or null.
  FusedGemms(std::shared_ptr<Communicator> communicator, DeviceType deviceType,
             std::shared_ptr<Collectives> collectives)
      : communicator_(std::move(communicator)), deviceType_(deviceType), collectives_(std::move(collectives)) {}
  FusedGemms(const FusedGemms&) = delete;
  FusedGemms& operator=(const FusedGemms&) = delete;

  /// FusedGemm::run(), for a GemmLayer with these operands and fastAccumulation. call.width and call.depth are above 0.
  /// Called by all ranks, in the same order, with the same operands, fastAccumulation and rows, the same width
  /// (AllReduce, ReduceScatter) or depth (AllGather), and all with a norm or none. The first call of that size and
  /// type, with a norm or without, and a later one with more rows than a power of two that is enough for the earlier
  /// ones, allocates scratch on all ranks: it cannot be captured in a graph. Graphs of earlier calls stay fit for use,
  /// on the stream of the later ones. After a failure throws what check() throws.
  void run(GemmCollective collective, const FusedGemmCall& call, DataType operands = DataType::BFLOAT16,
           bool fastAccumulation = false);
  /// FusedGemm::check() of all.
  void check() const;

 private:
  /// What an object depends on, the same on all ranks: the type of the operands and whether their sums are fast, the
  /// columns of the rows that travel, and whether there is a norm.
  using Key = std::tuple<GemmCollective, DataType, bool, std::size_t, bool>;

  std::shared_ptr<Communicator> communicator_;
  DeviceType deviceType_;
  std::shared_ptr<Collectives> collectives_;
  std::map<Key, std::map<std::size_t, std::unique_ptr<FusedGemm>>> gemms_;  // by the most rows
};

}  // namespace mscclpp::python
