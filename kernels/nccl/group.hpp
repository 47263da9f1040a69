// The group of a thread: what its calls ask for between ncclGroupStart and the outermost ncclGroupEnd.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kernels/nccl/comm.hpp"
#include "kernels/nccl/result.hpp"

namespace mscclpp::nccl {

class Group {
 public:
  static Group& ofThisThread();

  void start();
  /// Ends the innermost group. The outermost one first runs the set-ups, each on a thread of its own, since the ranks
  /// of one thread wait for each other in them; then it enqueues the calls, communicator by communicator. Nothing is
  /// done if a call of the group has failed: throws its failure, else the first one of what is done here.
  void end();
  /// The same without doing anything: the calls are dropped.
  void drop();

  /// Performs a set-up that waits for other ranks, with the device of this thread: now, or when the group ends.
  void setUp(std::function<void()> body);
  void call(const std::shared_ptr<Comm>& comm, const PendingCall& call);

  /// A call of the group has failed.
  void fail(const Failure& failure);

 private:
  struct SetUp {
    std::function<void()> body;
    int device;
  };
  struct CallsOfComm {
    std::shared_ptr<Comm> comm;
    std::vector<PendingCall> calls;
  };

  /// Closes a group; true for the outermost one.
  bool close();

  int depth_ = 0;
  bool isForwarded_ = false;  // a group of the NCCL that others are forwarded to is open, too
  Failure failure_{ncclSuccess, {}};
  std::vector<SetUp> setUps_;
  std::vector<CallsOfComm> calls_;
};

}  // namespace mscclpp::nccl
