// The ranks of a backend, and the sequences of calls that they have with each other.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "kernels/nccl/rank_set.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "torch_headers.hpp"

namespace mscclpp::torch_c10d {

/// One set of connections, and over it a rank set for each part of a backend that runs beside the others. Splits have
/// sets of their own over the same connections, and therefore cost no new ones.
class Ranks {
 public:
  /// Called by all ranks: connects them, by an id that rank 0 puts into the store. Throws Error, and what the store
  /// throws.
  static Ranks connect(c10d::Store& store, int rank, int size, std::chrono::milliseconds timeout);
  /// Some of these ranks, the caller among them, in this order. Called by all of them. Throws Error.
  Ranks subset(const std::vector<int>& members) const;
  /// This rank and another one, in the order of their ranks. Called by both.
  nccl::RankSet pairWith(int peer) const;

  nccl::RankSet cpu;
  nccl::RankSet gpu;
  nccl::RankSet messages;  ///< sends and receives of CPU tensors, and agreements on new sets

  void setTimeout(std::chrono::milliseconds timeout) const { connections_->setTimeout(timeout); }
  /// Tells the other ranks that this one makes no more calls.
  void leave() const noexcept;

  /// Tags of `messages` below this are those of users.
  static constexpr int userTags = 1 << 14;

 private:
  /// The sets of `members` of a parent, whose numbers the lowest member has chosen.
  Ranks(std::shared_ptr<TcpBootstrap> connections, const nccl::RankSet& parent, const std::vector<int>& members);

  std::shared_ptr<TcpBootstrap> connections_;
};

}  // namespace mscclpp::torch_c10d
