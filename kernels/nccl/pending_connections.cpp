#include "kernels/nccl/pending_connections.hpp"

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::nccl {

void PendingConnections::end() noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& bootstrap : bootstraps_) bootstrap->abort();
}

void PendingConnections::close() noexcept {
  const std::lock_guard lock(mutex_);
  isClosed_ = true;
  for (const auto& bootstrap : bootstraps_) bootstrap->abort();
}

void PendingConnections::add(const std::shared_ptr<TcpBootstrap>& bootstrap) {
  const std::lock_guard lock(mutex_);
  if (isClosed_) throw Error("the set-up of the communicator was aborted", ErrorCode::Aborted);
  bootstraps_.insert(bootstrap);
}

void PendingConnections::remove(const std::shared_ptr<TcpBootstrap>& bootstrap) noexcept {
  const std::lock_guard lock(mutex_);
  bootstraps_.erase(bootstrap);
}

PendingConnection::~PendingConnection() {
  for (PendingConnections* const owner : owners_) owner->remove(bootstrap_);
}

RankSet PendingConnection::connect(const UniqueId& id, int ranks, int rank) {
  bootstrap_ = std::make_shared<TcpBootstrap>(rank, ranks);
  for (PendingConnections* const owner : owners_) owner->add(bootstrap_);
  return RankSet::connect(bootstrap_, id);
}

}  // namespace mscclpp::nccl
