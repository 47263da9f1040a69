// A one-sided call with checked arguments: a copy into memory of a peer with a signal, a signal, or a wait for signals.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/movers/one_sided_mover.hpp"

namespace mscclpp::nccl {

/// Which of the signals from one rank to another.
struct SignalName {
  int context;
  int index;
};

/// How many there are: contexts, and signals in each.
struct SignalNames {
  int contexts;
  int signals;
};

/// A call in this library's terms. Signals of different names are counted by different counters.
struct OneSidedCall {
  std::shared_ptr<const void> window;  ///< keeps the peer's memory mapped
  const void* from = nullptr;
  void* to = nullptr;  ///< this rank's mapping of the peer's memory
  std::size_t bytes = 0;
  int peer = 0;     ///< that is signalled
  int counter = 0;  ///< of the signal
  bool isWait = false;
  std::vector<kernels::AwaitedSignals> awaited;  ///< then: what for
};

}  // namespace mscclpp::nccl
