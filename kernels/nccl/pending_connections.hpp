// New connections between ranks that are being made, so that another thread can end the calls that wait for them.
#pragma once

#include <initializer_list>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "kernels/nccl/rank_set.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp::nccl {

/// Any thread may call any function.
class PendingConnections {
 public:
  /// Ends the calls that are waiting now: they throw Error(Aborted).
  void end() noexcept;
  /// The same, and later calls throw too.
  void close() noexcept;

 private:
  friend class PendingConnection;

  void add(const std::shared_ptr<TcpBootstrap>& bootstrap);
  void remove(const std::shared_ptr<TcpBootstrap>& bootstrap) noexcept;

  std::mutex mutex_;
  bool isClosed_ = false;
  std::set<std::shared_ptr<TcpBootstrap>> bootstraps_;
};

/// The scope of a call that may connect ranks, and of what it then does over the connections. Each of the owners can
/// end it, and must outlive it.
class PendingConnection {
 public:
  explicit PendingConnection(std::initializer_list<PendingConnections*> owners) : owners_(owners) {}
  ~PendingConnection();
  PendingConnection(const PendingConnection&) = delete;
  PendingConnection& operator=(const PendingConnection&) = delete;

  /// Once: connects the ranks of an id. Returns when all of them have called it. Throws what TcpBootstrap::initialize
  /// throws, and Error(Aborted) if an owner is closed.
  RankSet connect(const UniqueId& id, int ranks, int rank);

 private:
  const std::vector<PendingConnections*> owners_;
  std::shared_ptr<TcpBootstrap> bootstrap_;  // null before connect
};

}  // namespace mscclpp::nccl
