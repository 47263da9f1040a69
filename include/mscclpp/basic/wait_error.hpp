// What a failed wait or a wrong call says on the host: its sentence, and exceptions.
#pragma once

#if !defined(__CUDACC_RTC__)  // empty in device code that is compiled at run time: there are no exceptions

#include <stdexcept>
#include <string>

#include "mscclpp/basic/wait_record.hpp"

namespace mscclpp {

namespace detail {

inline const char* nameOf(WaitOperation operation) {
  switch (operation) {
    case WaitOperation::Packet:
      return "a packet";
    case WaitOperation::Semaphore:
      return "a signal";
    case WaitOperation::TeamBarrier:
      return "a team barrier";
    case WaitOperation::GridBarrier:
      return "a grid barrier";
    case WaitOperation::Progress:
      return "progress in a pipeline";
    case WaitOperation::Fifo:
      return "a FIFO";
    case WaitOperation::Barrier:
      return "a barrier in shared memory";
    case WaitOperation::FifoTooSmall:
      return "room for a whole warp in a FIFO, which has fewer slots than the warp has lanes";
    case WaitOperation::User:
      return "a user-defined condition";
    case WaitOperation::Call:
      return "the same call of a collective";
    case WaitOperation::PlanPacket:
      return "a packet";
    case WaitOperation::PlanSignal:
      return "a signal";
    case WaitOperation::PlanFlush:
      return "the completion of writes by the proxy";
    case WaitOperation::PlanBarrier:
      return "other blocks at a barrier";
    case WaitOperation::PlanSemaphore:
      return "a device semaphore";
    case WaitOperation::Unknown:
      break;
  }
  return "an unknown operation";
}

/// Where the waiting thread was, as `block` of a WaitRecord says.
inline std::string placeText(const WaitRecord& record) {
  if (record.operation < WaitOperation::PlanPacket) return "block " + std::to_string(record.block);
  return "block " + std::to_string(record.block & 0xffffu) + ", operation " + std::to_string(record.block >> 16) +
         " of the plan";
}

/// The grid that a word of a WaitRecord describes.
inline std::string gridText(std::uint64_t word) {
  return std::to_string(word & 0xffffu) + " blocks of " + std::to_string(word >> 16) + " threads";
}

}  // namespace detail

/// Whether the record is of a wrong call, and not of a wait that ended.
inline bool isInvalidCall(const WaitRecord& record) {
  return record.outcome == WaitOutcome::InvalidCall || record.outcome == WaitOutcome::OtherCollective ||
         record.outcome == WaitOutcome::OtherCount || record.outcome == WaitOutcome::OtherGrid ||
         record.outcome == WaitOutcome::OutputTooSmall || record.outcome == WaitOutcome::OtherHandle;
}

/// The record as a sentence: who waited for whom and for what, or which call was wrong, and what to do.
inline std::string sentenceOf(const WaitRecord& record) {
  const std::string own = "rank " + std::to_string(record.rank);
  const std::string peer = "rank " + std::to_string(record.peer);
  std::string end = " until it was aborted";
  switch (record.outcome) {
    case WaitOutcome::InvalidCall:
      return own + " calls a collective with " + std::to_string(record.expected) +
             " elements (of a GEMM: rows) and a grid of " + detail::gridText(record.seen) +
             ", which do not fit its other arguments: make the scratch for as many elements or rows (CollectiveState, "
             "scratchFor), that of a pipeline for as many blocks and with a power of two of slots (PipelineShape); "
             "launch a GEMM with blocks of maxBlockThreads threads, and with matrices that have these rows and the "
             "columns of its scratch; of the values of a RuntimeOp, SUM, PROD, MAX, MIN and AVG are operators";
    case WaitOutcome::OtherCollective:
      return peer + " calls another collective than " + own +
             " on the same scratch: all ranks must make the same calls in the same order, with the same element type, "
             "operator and configuration";
    case WaitOutcome::OtherCount:
      return peer + " calls a collective with " + std::to_string(record.seen) + " elements, " + own + " with " +
             std::to_string(record.expected) + ": all ranks must pass the same count";
    case WaitOutcome::OtherGrid:
      return peer + " calls a collective with " + detail::gridText(record.seen) + ", " + own + " with " +
             detail::gridText(record.expected) + ": all ranks must call it with the same numbers of blocks and threads";
    case WaitOutcome::OutputTooSmall:
      return "the output of " + peer + " for the rows of its experts holds " + std::to_string(record.expected) +
             " rows, and a dispatch sends it " + std::to_string(record.seen) +
             ", padding included: give every rank an output of at least as many rows, or of as many as every routing "
             "needs (moe::Buffer::largestCapacity())";
    case WaitOutcome::OtherHandle:
      return own +
             " combines with a handle of another buffer or form, of a dispatch with another number of tokens, or " +
             "of none that has been received: pass what that dispatch has returned";
    case WaitOutcome::Deadline:
      end = " past its deadline";
      break;
    case WaitOutcome::PeerLeft:
      end = ", which cannot arrive any more";
      break;
    case WaitOutcome::Pending:
    case WaitOutcome::Aborted:
      break;
  }
  std::string text = own + ", " + detail::placeText(record) + ", waited for ";
  text += detail::nameOf(record.operation);
  if (record.peer >= 0) text += " of " + peer;
  return text + end + ": expected " + std::to_string(record.expected) + ", saw " + std::to_string(record.seen) +
         " after " + std::to_string(record.waitedNanoseconds / 1000000) + " ms";
}

/// Thrown on a CPU by a checked call of a collective that is wrong (collective/call_check.hpp), in the thread that
/// makes it. What its record says.
class InvalidCall : public std::logic_error {
 public:
  explicit InvalidCall(const WaitRecord& record) : std::logic_error(sentenceOf(record)), record_(record) {}
  const WaitRecord& record() const noexcept { return record_; }

 private:
  WaitRecord record_;
};

}  // namespace mscclpp

#endif
