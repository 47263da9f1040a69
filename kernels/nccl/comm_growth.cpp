// Communicators that ranks join: growth.
#include <algorithm>
#include <string>
#include <vector>

#include "host/bootstrap/group_agreement.hpp"
#include "host/communicator/group_setup.hpp"
#include "kernels/nccl/comm.hpp"
#include "kernels/nccl/device.hpp"
#include "kernels/nccl/exchanged_value.hpp"

namespace mscclpp::nccl {

namespace {

/// What the ranks of a communicator that grows tell each other.
struct Intent {
  int ranks;        ///< of the new communicator
  UniqueId nextId;  ///< of the next growth: that of rank 0 counts
};

}  // namespace

// Rank 0 remains rank 0: the id that it would connect another set of ranks with serves, and all ranks have it already.
UniqueId Comm::growthId() const {
  requireReady();
  const std::lock_guard lock(mutex_);
  return successorIds_[0];
}

std::shared_ptr<Comm> Comm::grow(int ranks, const std::function<GrowthOptions()>& readOptions,
                                 PendingConnections& others) {
  const DeviceScope scope(device_);
  const UniqueId own = growthId();
  GrowthOptions options;
  {
    const detail::GroupSetup setup(*resources_->communicator);
    const detail::GroupAgreement agreement(*ranks_.bootstrap(), "the growth");
    // An id connects ranks once, whatever becomes of this growth.
    const auto intents = agreement.runStep("begin it", [&] {
      return toBytes(Intent{ranks, rank() == 0 ? TcpBootstrap::createUniqueId() : UniqueId{}});
    });
    {
      const std::lock_guard lock(mutex_);
      successorIds_[0] = valueOf<Intent>(intents[0]).nextId;
    }
    // Wrong arguments of one rank are an error of all of them, and of those that join: they would wait for it.
    int most = ranks;
    for (const auto& intent : intents) most = std::max(most, valueOf<Intent>(intent).ranks);
    try {
      agreement.runStep("pass valid arguments", [&] {
        options = readOptions();
        if (ranks <= size()) {
          throwInvalidArgument("nRanks is " + std::to_string(ranks) + "; the communicator has " +
                               std::to_string(size()) + " ranks already");
        }
        if (options.id && *options.id != own) {
          throwInvalidArgument("uniqueId is not what ncclCommGetUniqueId gives for this communicator");
        }
        return std::vector<char>();
      });
      for (std::size_t i = 0; i < intents.size(); ++i) {
        const int other = valueOf<Intent>(intents[i]).ranks;
        if (other == most) continue;
        throwInvalidArgument("nRanks is " + std::to_string(other) + " on rank " + std::to_string(i) + ", but " +
                             std::to_string(most) + " on another; it must be the same");
      }
    } catch (const Error& error) {
      if (rank() == 0 && error.getErrorCode() != ErrorCode::Aborted) RankSet::refuse(own, error, most - size());
      throw;
    }
  }
  PendingConnection connection({&pendingConnections_, &others});
  return std::make_shared<Comm>(connection.connect(own, ranks, rank()), options.config);
}

}  // namespace mscclpp::nccl
