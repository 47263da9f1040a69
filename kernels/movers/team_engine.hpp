// An engine, with what its barriers need.
#pragma once

#include <memory>

#include "kernels/movers/engine.hpp"
#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"

namespace mscclpp::kernels {

/// An engine for the ranks of a communicator, the memory of its barriers, and the monitor of their waits.
class TeamEngine {
 public:
  /// Collective. monitor: null: one of its own. what: it is for, in messages. Throws what SymmetricMemory and
  /// makeGpuEngine() throw.
  TeamEngine(Communicator& communicator, DeviceType deviceType, int copiesPerTransfer,
             std::shared_ptr<WaitMonitor> monitor, const char* what);

  Engine& engine() { return *engine_; }
  int rank() const { return memory_.rank(); }
  int ranks() const { return memory_.nRanks(); }
  /// Throws if a wait is known to have failed: before and after calls, and after a stream was synchronised.
  void check() const { monitor_->check(); }

 private:
  SymmetricMemory memory_;
  std::shared_ptr<WaitMonitor> monitor_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace mscclpp::kernels
