// A set-up that ranks of a communicator make together.
#pragma once

#include <memory>
#include <string>

#include "host/communicator/communicator_state.hpp"

namespace mscclpp::detail {

/// The scope of the set-up: abort() of the communicator, from any thread, ends the calls in it with Error(Aborted),
/// those of the bootstrap and those of callPeer and callPeers.
class GroupSetup {
 public:
  /// Throws Error(Aborted) if the communicator was aborted before.
  explicit GroupSetup(const Communicator& communicator) : state_(communicator.state_), call_(*state_) {}

  /// Runs a call that contacts peers outside the bootstrap, with the deadline that it must keep.
  template <class Call>
  auto callPeers(const Call& call) const {
    return state_->callPeers(call);
  }
  /// The same for one peer: `prefix` and the rank are prepended to the message of an Error.
  template <class Call>
  auto callPeer(const std::string& prefix, int rank, const Call& call) const {
    return state_->callPeer(prefix, rank, call);
  }

 private:
  const std::shared_ptr<Communicator::State> state_;
  const Communicator::State::BootstrapCall call_;
};

}  // namespace mscclpp::detail
