// Communicators that ranks join: growth.
#include <cstring>
#include <string>

#include "host/bootstrap/group_agreement.hpp"
#include "host/communicator/group_setup.hpp"
#include "kernels/nccl/comm.hpp"
#include "kernels/nccl/device.hpp"
#include "kernels/nccl/exchanged_value.hpp"

namespace mscclpp::nccl {

// Rank 0 remains rank 0: the id that it would connect another set of ranks with serves, and all ranks have it already.
UniqueId Comm::growthId() const {
  requireReady();
  const std::lock_guard lock(mutex_);
  if (usedSuccessors_.contains(0)) throwInvalidUsage("a rank has failed to grow this communicator: make a new one");
  return successorIds_[0];
}

std::shared_ptr<Comm> Comm::grow(int ranks, const UniqueId* id, const CommConfig& config, PendingConnections& others) {
  const UniqueId own = growthId();
  if (ranks <= size()) {
    throwInvalidArgument("nRanks is " + std::to_string(ranks) + "; the communicator has " + std::to_string(size()) +
                         " ranks already");
  }
  if (id != nullptr && *id != own) {
    throwInvalidArgument("uniqueId is not what ncclCommGetUniqueId gives for this communicator");
  }
  const DeviceScope scope(device_);
  {
    const std::lock_guard lock(mutex_);
    usedSuccessors_.insert(0);
  }
  PendingConnection connection({&pendingConnections_, &others});
  auto grown = std::make_shared<Comm>(connection.connect(own, ranks, rank()), config);
  // Another id for the next growth.
  const detail::GroupSetup setup(*resources_->communicator);
  const detail::GroupAgreement agreement(*ranks_.bootstrap(), "the growth");
  const auto ids = agreement.runStep(
      "make another id", [&] { return toBytes(rank() == 0 ? TcpBootstrap::createUniqueId() : UniqueId{}); });
  const std::lock_guard lock(mutex_);
  successorIds_[0] = valueOf<UniqueId>(ids[0]);
  usedSuccessors_.erase(0);
  return grown;
}

}  // namespace mscclpp::nccl
