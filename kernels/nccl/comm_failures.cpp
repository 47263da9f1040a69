// How a communicator ends: finalised, aborted, revoked or failed; and what it leaves to explain that.
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>

#include "kernels/nccl/comm.hpp"
#include "kernels/nccl/log.hpp"
#include "mscclpp/host/base/env.hpp"

namespace mscclpp::nccl {

bool Comm::isRevoked() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::Revoked;
}

void Comm::finalize() {
  requireReady();
  if (forwarded_) forwarded_->finalize();
  const std::lock_guard lock(mutex_);
  state_ = State::Finalized;
}

void Comm::stop() noexcept {
  resources_->communicator->abort();
  pendingConnections_.end();
  if (forwarded_) forwarded_->abort();
}

void Comm::abort() noexcept {
  {
    const std::lock_guard lock(mutex_);
    state_ = State::Aborted;
  }
  pendingConnections_.close();
  stop();
  ranks_.leave();  // before anything that takes time: other ranks wait for it
  dumpCalls("aborted");
}

void Comm::revoke() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::Finalized) throwInvalidUsage("the communicator was finalized");
    if (state_ == State::Revoked) return;
    state_ = State::Revoked;
  }
  stop();
}

Failure Comm::asyncError() noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      const bool canFail = state_ == State::Ready || state_ == State::Finalized;  // calls may still be in flight
      if (!canFail || failure_.result != ncclSuccess) return failure_;
    }
    if (forwarded_) {
      ncclResult_t result = ncclSuccess;
      forwarded_->check(forwarded_->library().commGetAsyncError(forwarded_->handle(), &result));
      return {result, result == ncclSuccess ? "" : forwarded_->library().getLastError(forwarded_->handle())};
    }
    try {
      if (const auto collectives = findCollectives()) collectives->check();
      if (const auto* oneSided = findOneSided()) oneSided->check();
    } catch (...) {
      recordFailure(describeException());
    }
    const std::lock_guard lock(mutex_);
    return failure_;
  } catch (...) {
    return {ncclSystemError, {}};
  }
}

void Comm::recordFailure(const Failure& failure) noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      if (failure_.result != ncclSuccess || state_ == State::Revoked || state_ == State::Aborted) return;
      failure_ = failure;
    }
    dumpCalls(failure.message);
  } catch (...) {  // out of memory: the caller has the failure
  }
}

void Comm::dumpCalls(const std::string& why) const noexcept {
  try {
    const std::string title = "rank " + std::to_string(rank()) + " of " + std::to_string(size()) + ": " + why;
    if (env()->ncclDumpDir.empty()) {
      constexpr std::size_t fewLines = 8;
      std::string text = title + "; its last calls (MSCCLPP_NCCL_DUMP_DIR=<folder> keeps " +
                         std::to_string(FlightRecorder::capacity) + " in a file):";
      for (const std::string& line : recorder_.lines(fewLines)) text += "\n  " + line;
      log(LogLevel::Warn, text);
      return;
    }
    static std::atomic<int> files = 0;
    const std::string path = env()->ncclDumpDir + "/nccl_calls_rank_" + std::to_string(rank()) + "_process_" +
                             std::to_string(::getpid()) + "_" + std::to_string(files++) + ".txt";
    std::ofstream file(path);
    file << title << '\n';
    for (const std::string& line : recorder_.lines()) file << line << '\n';
    if (!file.flush()) log(LogLevel::Warn, "cannot write " + path + ": check MSCCLPP_NCCL_DUMP_DIR");
  } catch (...) {  // the failure itself is reported elsewhere
  }
}

}  // namespace mscclpp::nccl
