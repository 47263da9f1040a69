// The collectives of a rank set, which its first call sets up.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>

#include "kernels/nccl/rank_set.hpp"
#include "mscclpp/basic/wait.hpp"
#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "operation.hpp"

namespace mscclpp::torch_c10d {

/// One thread at a time calls it, but for abort(), check() and signalWait(), which any thread may call. Functions throw
/// BaseError.
class LazyCollectives {
 public:
  LazyCollectives(nccl::RankSet ranks, DeviceType deviceType, int maxBlocks = 0);
  /// Ends it locally; no call is in progress.
  ~LazyCollectives();
  LazyCollectives(const LazyCollectives&) = delete;
  LazyCollectives& operator=(const LazyCollectives&) = delete;

  int rank() const { return ranks_.rank(); }
  int size() const { return ranks_.size(); }

  /// Of the waits of its calls; in force from the set-up on.
  void setTimeout(std::chrono::milliseconds timeout) noexcept { timeout_ = timeout; }
  /// Sets it up, if that has not happened. Collective, then; on a GPU for the current device.
  Collectives& get();
  /// Performs the collectives and the exchange of an operation, on a stream.
  void run(Operation& operation, CUstream_st* stream);
  /// Collectives::registerBuffer. Collective.
  RegisteredBuffers::Handle registerBuffer(void* data, std::size_t bytes);
  /// The policy of waits for signals in registered memory; timeout 0: that of the set-up. check() throws if one has
  /// failed. Any thread may call it.
  BoundedWait signalWait(std::chrono::milliseconds timeout) const;
  /// Ends all calls, here and on the other ranks, which then fail.
  void abort() noexcept;
  /// Throws if a call has failed on the device since.
  void check() const;

 private:
  nccl::RankSet ranks_;
  const DeviceType deviceType_;
  const int maxBlocks_;
  std::atomic<std::chrono::milliseconds> timeout_{std::chrono::minutes(30)};
  mutable std::mutex mutex_;  // of the pointers
  bool isAborted_ = false;
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<Collectives> collectives_;
  std::shared_ptr<WaitMonitor> signals_;  // made with the first registered buffer
};

}  // namespace mscclpp::torch_c10d
