// The base class of connections over a network: a batch of operations is posted together, and a forked child leaves the
// connection to its parent.
#pragma once

#include <utility>

#include "host/base/process_identity.hpp"
#include "host/transport/connection_base.hpp"

namespace mscclpp::detail {

class NetworkConnection : public ConnectionBase {
 public:
  using ConnectionBase::ConnectionBase;

  void beginBatch() final { isBatching_ = true; }
  void endBatch() final {
    if (std::exchange(isBatching_, false)) postBatch();
  }

 protected:
  /// Posts the operations that were buffered between beginBatch and endBatch.
  virtual void postBatch() = 0;
  bool isBatching() const noexcept { return isBatching_; }
  /// Whether this is a forked child, which shares the socket or the queues with its parent: they belong to the parent.
  bool isForkedCopy() const noexcept { return !owner_.isCurrent(); }

 private:
  const OwnerProcess owner_;
  bool isBatching_ = false;
};

}  // namespace mscclpp::detail
