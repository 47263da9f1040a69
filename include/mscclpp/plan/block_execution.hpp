// The execution of a block of a plan: its operations as functions, which the interpreter and specialised code call.
#pragma once

#include "mscclpp/basic/concepts.hpp"
#include "mscclpp/plan/synchronisation.hpp"
#include "mscclpp/plan/transfer.hpp"

namespace mscclpp::plan {

/// What is known of calls at compile time. Members of other types than this may have other values.
struct UnknownShape {
  static constexpr std::int32_t chunksPerPart = 0;  ///< 0: unknown
  static constexpr int format = -1;                 ///< a PacketFormat; -1: unknown
};

/// One call of a block. Made by every thread of the block, which then all call the same functions in the same order,
/// begin() first and end() last; nothing in between if begin() returns false.
///
/// T: the type of the elements; Op: the reduction operator; Shape: UnknownShape or like it. After a failed wait the
/// threads go on to sync, but signal nothing, write no packets, and move no data once they have synced: what others
/// would take for a result is not sent.
template <class T, VotingGroup Group, class Op, class Shape = UnknownShape>
class BlockExecution {
 public:
  MSCCLPP_INLINE BlockExecution(const Group& group, int block, const ExecutionArgs& args, const Op& op)
      : group_(group),
        args_(args),
        message_(args.message),
        op_(op),
        wait_(args.wait),
        epoch_(args.state.epochs[block]),
        half_((epoch_ & 1) * args.scratchHalf),
        block_(static_cast<std::uint32_t>(block)),
        hasFailed_(false),
        isStopped_(false) {
    if constexpr (Shape::chunksPerPart > 0) message_.chunksPerPart = Shape::chunksPerPart;
  }

  /// Whether the block is to run: not after a failed call.
  MSCCLPP_INLINE bool begin() const { return (epoch_ & ExecutionState::stopped) == 0; }

  /// Ends the call, and the sequence of calls if a wait has failed.
  MSCCLPP_INLINE void end() {
    sync();
    if (group_.rank() == 0) args_.state.epochs[block_] = isStopped_ ? epoch_ | ExecutionState::stopped : epoch_ + 1;
  }

  /// For operation `index` of the block, as records of failed waits name it.
  MSCCLPP_INLINE PlanSite siteOf(int index) const { return {args_.rank, block_, static_cast<std::uint32_t>(index)}; }

  /// The operations that follow are for this iteration of a loop; Iteration{}: of none.
  MSCCLPP_INLINE void setIteration(const Iteration& iteration) { iteration_ = iteration; }
  MSCCLPP_INLINE std::uint64_t iterations(std::uint64_t unit) const { return iterationsOf(message_, unit); }

  /// A Transfer without Port operands. operand(i): the i-th operand, sources first. Sources, Destinations: their
  /// numbers; 0: as `operation` says.
  template <int Sources, int Destinations, class OperandAt>
  MSCCLPP_INLINE void transfer(const Operation& operation, const OperandAt& operand, int index) {
    if (hasToSkip()) return;
    MSCCLPP_NO_UNROLL
    for (std::int32_t i = 0; i < operation.chunks; ++i) {
      const ByteSpan span = spanOf(message_, operation, i, iteration_);
      const auto find = [&](int j) { return placeOf(operand(j), i, span.begin); };
      transferSpan<Sources, Destinations>(operation, span.size, find, index);
    }
  }

  /// The same for one chunk, which has been resolved. operand(i): a ResolvedOperand (resolved_program.hpp).
  template <class OperandAt>
  MSCCLPP_INLINE void transferResolved(const Operation& operation, const ByteSpan& known, const OperandAt& operand,
                                       int index) {
    if (hasToSkip()) return;
    const ByteSpan span = iteration_.unit == 0 ? known : spanOf(message_, operation, 0, iteration_);
    const auto find = [&](int j) {
      const auto& resolved = operand(j);
      return Place{resolved.address + (resolved.isScratch ? half_ : 0), resolved.form, resolved.writer}.further(
          span.begin);
    };
    transferSpan<0, 0>(operation, span.size, find, index);
  }

  /// A Transfer whose destination is reached through a Port channel: one thread, the one that also signals and flushes
  /// through the channel, pushes a request for each chunk.
  /// Packets are written as they are, flags included, once they have arrived in the source.
  MSCCLPP_INLINE void transferThroughPort(const Operation& operation, const Operand& source, const Operand& destination,
                                          int index) {
    if (source.form == Form::Packet) {
      awaitPackets(operation, source, index);
      sync();
    }
    if (hasToSkip() || group_.rank() != destination.channel % group_.size()) return;
    const ChannelEnd& end = args_.channels[destination.channel];
    const PortMemory from = args_.memories[static_cast<int>(source.buffer) * args_.ranks + args_.rank];
    const PortMemory to = args_.memories[static_cast<int>(destination.buffer) * args_.ranks + destination.rank];
    const auto bytesOf = [&](std::uint64_t data) {
      return source.form == Form::Packet ? packetBytes(format(), data) : data;
    };
    for (std::int32_t i = 0; i < operation.chunks; ++i) {
      const ByteSpan span = spanOf(message_, operation, i, iteration_);
      if (span.size == 0) continue;
      const std::uint64_t begin = bytesOf(span.begin);
      const bool isPushed = end.port.put(to.id, to.offset + offsetOf(destination, i) + begin, from.id,
                                         from.offset + offsetOf(source, i) + begin, bytesOf(span.size));
      hasFailed_ = hasFailed_ || !isPushed;
    }
  }

  /// Signal, Wait, Flush: reference(i), i < operation.references.count: the channels, each used by one thread.
  template <class ReferenceAt>
  MSCCLPP_INLINE void signal(const Operation& operation, const ReferenceAt& reference) {
    if (hasToSkip()) return;
    forOwnReferences(operation, reference, [&](int channel) {
      if (!signalEnd(args_.channels[channel], operation.relaxed)) hasFailed_ = true;
    });
  }
  template <class ReferenceAt>
  MSCCLPP_INLINE void wait(const Operation& operation, const ReferenceAt& reference, int index) {
    if (hasToSkip()) return;
    forOwnReferences(operation, reference, [&](int channel) {
      waitForEnd(args_.channels[channel], operation.relaxed, siteOf(index), wait_);
    });
  }
  template <class ReferenceAt>
  MSCCLPP_INLINE void flush(const Operation& operation, const ReferenceAt& reference) {
    if (hasToSkip()) return;
    forOwnReferences(operation, reference, [&](int channel) {
      if (!args_.channels[channel].port.flush()) hasFailed_ = true;
    });
  }
  /// Acquire, Release: reference(i): the device semaphores.
  template <class ReferenceAt>
  MSCCLPP_INLINE void acquire(const Operation& operation, const ReferenceAt& reference, int index) {
    if (hasToSkip()) return;
    forOwnReferences(operation, reference, [&](int semaphore) {
      acquireSemaphore(&args_.state.semaphores[semaphore], siteOf(index), wait_);
    });
  }
  template <class ReferenceAt>
  MSCCLPP_INLINE void release(const Operation& operation, const ReferenceAt& reference) {
    if (hasToSkip()) return;
    forOwnReferences(operation, reference,
                     [&](int semaphore) { releaseSemaphore(&args_.state.semaphores[semaphore]); });
  }

  MSCCLPP_INLINE void sync() { isStopped_ = group_.syncAny(hasFailed_ || wait_.failed()) || isStopped_; }
  MSCCLPP_INLINE void barrier(const Operation& operation, int index) {
    sync();
    if (!isStopped_ && group_.rank() == 0)
      arriveAndWait(args_.state.barriers[operation.index], operation.blocks, siteOf(index), wait_);
    sync();
  }

 private:
  MSCCLPP_INLINE PacketFormat format() const {
    if constexpr (Shape::format >= 0) {
      return static_cast<PacketFormat>(Shape::format);
    } else {
      return args_.format;
    }
  }

  MSCCLPP_INLINE bool hasToSkip() const { return isStopped_ || wait_.failed(); }

  /// Waits until the packets of an operand of this rank have arrived, those of this thread.
  MSCCLPP_INLINE void awaitPackets(const Operation& operation, const Operand& source, int index) {
    if (hasToSkip()) return;
    const std::uint32_t flag = flagOf(epoch_);
    for (std::int32_t i = 0; i < operation.chunks; ++i) {
      const ByteSpan span = spanOf(message_, operation, i, iteration_);
      const std::uint64_t step = sizeof(Word128) * static_cast<std::uint64_t>(group_.size());
      for (std::uint64_t at = sizeof(Word128) * static_cast<std::uint64_t>(group_.rank()); at < span.size; at += step) {
        const Place place = placeOf(source, i, span.begin + at);
        const std::uint64_t left = span.size - at;
        wait_.until(siteOf(index).waitFor(WaitOperation::PlanPacket, place.writer, flag), [&](std::uint64_t& seen) {
          Word128 word;
          const bool complete = detail::tryReadPackets(format(), place.address,
                                                       left < sizeof(Word128) ? left : sizeof(Word128), flag, word);
          seen = complete ? flag : 0;
          return complete;
        });
      }
    }
  }

  /// Moves `bytes` bytes from the places of the sources to those of the destinations. find(i): the i-th place, sources
  /// first.
  template <int Sources, int Destinations, class Find>
  MSCCLPP_INLINE void transferSpan(const Operation& operation, std::uint64_t bytes, const Find& find, int index) {
    if (bytes == 0) return;
    const TransferSettings<Op> settings{op_, format(), flagOf(epoch_), operation.completes ? args_.ranks : 1,
                                        siteOf(index)};
    const int sources = operation.sources.count;
    const int destinations = operation.destinations.count;
    auto pack = static_cast<std::uint64_t>(group_.rank());
    if constexpr (Sources > 0) {
      pack = transferWholePacks<Sources, Destinations, T>(group_, find, bytes, settings, wait_);
    } else if (sources == 1 && destinations == 1) {
      pack = transferWholePacks<1, 1, T>(group_, find, bytes, settings, wait_);
    } else if (sources == 2 && destinations == 1) {
      pack = transferWholePacks<2, 1, T>(group_, find, bytes, settings, wait_);
    } else if (sources == 2 && destinations == 2) {
      pack = transferWholePacks<2, 2, T>(group_, find, bytes, settings, wait_);
    }
    transferPacks<T>(group_, sources, destinations, find, bytes, pack, settings, wait_);
  }

  MSCCLPP_INLINE std::uint64_t offsetOf(const Operand& operand, std::int32_t i) const {
    return plan::offsetOf(args_, message_, operand, operand.first + i) +
           (operand.buffer == BufferKind::Scratch ? half_ : 0);
  }
  /// Where the data of chunk i begins, `begin` bytes of data further.
  MSCCLPP_INLINE Place placeOf(const Operand& operand, std::int32_t i, std::uint64_t begin) const {
    std::byte* base = args_.buffers[static_cast<int>(operand.buffer)].at(operand.rank, offsetOf(operand, i));
    return Place{base, operand.form, operand.channel}.further(begin);
  }

  /// Calls use(reference) in the thread that all operations of the block leave this reference to.
  template <class ReferenceAt, class Use>
  MSCCLPP_INLINE void forOwnReferences(const Operation& operation, const ReferenceAt& reference, const Use& use) {
    const int count = operation.references.count;
    const auto next = [&](int i) {
      while (i < count && reference(i) % group_.size() != group_.rank()) ++i;
      return i;
    };
    // The threads of a warp find theirs first, and then use them together.
    MSCCLPP_NO_UNROLL
    for (int i = next(0); i < count; i = next(i + 1)) use(reference(i));
  }

  const Group& group_;
  const ExecutionArgs& args_;
  Message message_;
  [[no_unique_address]] Op op_;
  BoundedWait wait_;
  std::uint64_t epoch_;
  std::uint64_t half_;  ///< of scratch that alternates: where this call's begins
  std::uint32_t block_;
  Iteration iteration_;
  bool hasFailed_;  ///< something else than a wait of `wait_` has, in this thread
  bool isStopped_;  ///< something has failed in the block, before the last sync
};

}  // namespace mscclpp::plan
