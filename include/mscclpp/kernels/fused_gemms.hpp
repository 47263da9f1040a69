// Compiled matrix multiplications with a collective inside, for calls of layers of any sizes.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/host/base/device.hpp"
#include "mscclpp/kernels/fused_gemm.hpp"

namespace mscclpp {

namespace kernels {
class SharedCublas;
}  // namespace kernels

/// FusedGemm objects on one kind of device, made as calls need them and kept. One sequence of calls, which must not
/// overlap in time: they use one stream, or are ordered by the caller. One thread at a time calls an object, which must
/// outlive its calls on all ranks: synchronise before it is destroyed.
///
/// There is an object, with scratch of its own, for calls up to each power of two of rows, and for each power of two to
/// which the size is rounded up that scratch does not depend on: depth, or width of an all-gather. It is made with the
/// sizes of the first call that needs it, by which forms are chosen (FusedGemm::form()), and on which bits depend.
class FusedGemms {
 public:
  /// collectives: makeFusedGemm()'s, or null.
  FusedGemms(std::shared_ptr<Communicator> communicator, DeviceType deviceType,
             std::shared_ptr<Collectives> collectives = nullptr);
  ~FusedGemms();
  FusedGemms(const FusedGemms&) = delete;
  FusedGemms& operator=(const FusedGemms&) = delete;

  /// FusedGemm::run(), for a GemmLayer with these operands and fastAccumulation. call.width and call.depth are above 0.
  /// Called by all ranks, in the same order, with the same operands, fastAccumulation and rows, the same width
  /// (AllReduce, ReduceScatter) or depth (AllGather), and all with a norm or none. The other one of the two sizes may
  /// differ between ranks, if a call needs a new object on all ranks or on none: where shards of some ranks are above a
  /// power of two and those of others are not, and in another call all are on one side, pad them. Else waits time out.
  ///
  /// The first call that needs an object makes it, with its scratch, on all ranks: it cannot be captured in a graph.
  /// Graphs of earlier calls stay fit for use, on the stream of the later ones. Throws what makeFusedGemm() and
  /// FusedGemm::run() throw, and after a failure what check() throws.
  void run(GemmCollective collective, const FusedGemmCall& call, DataType operands = DataType::BFLOAT16,
           bool fastAccumulation = false);
  /// How run() computes a call with these arguments, of which the arrays are not read but whether there is a norm; none
  /// before the object for it has been made. For no rows: Fused, as nothing is enqueued.
  std::optional<GemmForm> form(GemmCollective collective, const FusedGemmCall& call,
                               DataType operands = DataType::BFLOAT16, bool fastAccumulation = false) const;
  /// FusedGemm::check() of all.
  void check() const;

 private:
  /// What an object depends on beside the rows: the type of the operands and whether their sums are fast, the columns
  /// of the rows that travel, the power of two of the other size, and whether there is a norm.
  using Key = std::tuple<GemmCollective, DataType, bool, std::size_t, std::size_t, bool>;

  static Key keyOf(GemmCollective collective, const FusedGemmCall& call, DataType operands, bool fastAccumulation);

  std::shared_ptr<Communicator> communicator_;
  DeviceType deviceType_;
  std::shared_ptr<Collectives> collectives_;
  std::unique_ptr<kernels::SharedCublas> cublas_;                           // of gemms_
  std::map<Key, std::map<std::size_t, std::unique_ptr<FusedGemm>>> gemms_;  // by the most rows
};

}  // namespace mscclpp
