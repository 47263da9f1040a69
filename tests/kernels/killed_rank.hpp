// Calls of every compiled collective in which a rank is killed, and what the others must get.
#pragma once

#include <string>
#include <vector>

#include "every_collective.hpp"

namespace mscclpp::test {

/// A call before which a rank is killed.
struct KilledCall {
  CheckedCall checked;
  bool othersWait;  ///< it is killed while the others may wait for it; else at once
};

/// Calls of a collective, short and long: if it has a root, from a root that survives and from the one that is killed.
inline std::vector<KilledCall> killedCallsOf(CollectiveType collective, int killed, std::size_t shortCount,
                                             std::size_t longCount) {
  std::vector<KilledCall> calls;
  bool othersWait = false;
  for (const int root : {0, killed}) {
    if (root == killed && !hasRoot(collective)) continue;
    for (const std::size_t count : {shortCount, longCount}) {
      KilledCall call{{}, othersWait};
      call.checked.call = {.collective = collective,
                           .count = count,
                           .type = DataType::FLOAT32,
                           .reduction = ReduceOp::MAX,
                           .root = root};
      call.checked.seed = 17;
      calls.push_back(call);
      othersWait = !othersWait;
    }
    othersWait = !othersWait;
  }
  return calls;
}

/// Whether the result of a rank depends on data from the killed one. If not, the call may succeed, with the right
/// result. Either way every later call fails as soon as the failure is known, and names the killed rank.
inline bool dependsOn(const CheckedCall& checked, int rank, int ranks, int killed) {
  const CollectiveCall call = roleOf(checked, rank, ranks).call;
  switch (call.collective) {
    case CollectiveType::AllReduce:
    case CollectiveType::AllGather:
    case CollectiveType::ReduceScatter:
    case CollectiveType::AllToAll:
    case CollectiveType::ReduceScatterV:
      return true;
    case CollectiveType::Broadcast:
    case CollectiveType::Scatter:
      return call.root == killed;
    case CollectiveType::Reduce:
    case CollectiveType::Gather:
      return call.root == rank;
    case CollectiveType::SendReceive:
      return call.origin == killed;
  }
  return true;
}

}  // namespace mscclpp::test
