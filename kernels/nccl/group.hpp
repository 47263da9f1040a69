// The group of a thread: what its calls ask for between ncclGroupStart and the outermost ncclGroupEnd.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/nccl/comm.hpp"
#include "kernels/nccl/pending_connections.hpp"
#include "kernels/nccl/result.hpp"

namespace mscclpp::nccl {

class Group {
 public:
  static Group& ofThisThread();

  void start();
  /// Ends the innermost group. The outermost one first runs the set-ups: those of parents that share connections in
  /// one order on all ranks, the others on threads of their own, since the ranks of one thread wait for each other in
  /// them. Then it enqueues the calls, communicator by communicator. Nothing is done if a call of the group has failed:
  /// throws its failure, else the first one of what is done here.
  void end();
  /// The same without doing anything: the calls are dropped. Throws the failure of a call of the group too.
  void drop();

  /// Performs a set-up that waits for other ranks, with the device of this thread: now, or when the group ends. parent:
  /// the communicator whose ranks make it, null for one that connects ranks. Those of a parent are performed in the
  /// order of the calls, also if one fails, since its ranks count on each other for the next.
  void setUp(const std::shared_ptr<Comm>& parent, std::function<void()> body);
  /// The same for a set-up that connects the ranks of an id. If it fails, the connections of those in the group that
  /// have the same id are closed: their ranks would wait for this one.
  void connect(const std::shared_ptr<Comm>& parent, const UniqueId& id,
               const std::function<void(PendingConnections&)>& body);
  void call(const std::shared_ptr<Comm>& comm, const PendingCall& call);

  /// A call of the group has failed.
  void fail(const Failure& failure);

 private:
  struct SetUp {
    std::shared_ptr<Comm> parent;
    std::function<void()> body;
    int device;
    UniqueId id;                                      // if it has connections
    std::shared_ptr<PendingConnections> connections;  // of the set-ups with the same id; null if it makes none
  };
  struct CallsOfComm {
    std::shared_ptr<Comm> comm;
    std::vector<PendingCall> calls;
  };

  static void perform(std::vector<SetUp> setUps);
  /// Closes a group; true for the outermost one.
  bool close(const char* function);

  int depth_ = 0;
  bool isForwarded_ = false;  // a group of the NCCL that others are forwarded to is open, too
  Failure failure_{ncclSuccess, {}};
  std::vector<SetUp> setUps_;
  std::vector<CallsOfComm> calls_;
};

/// As guarded(), for the functions that a group contains: a failure spoils the group that is open in this thread.
template <class Body>
ncclResult_t guardedInGroup(const char* function, Body&& body) noexcept {
  return guarded(function, [&] {
    try {
      std::forward<Body>(body)();
    } catch (...) {
      Group::ofThisThread().fail(describeException());
      throw;
    }
  });
}

}  // namespace mscclpp::nccl
