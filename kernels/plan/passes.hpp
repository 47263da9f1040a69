// What compilers of plans do to a draft: fuse operations, order a block's accesses, replicate, match signals.
#pragma once

#include <string>
#include <vector>

#include "draft.hpp"
#include "mscclpp/plan/syncs.hpp"

namespace mscclpp::plan {

/// Whether two ranges of chunks have one in common, which in place may be under another name.
bool overlap(const Draft& draft, const Operand& a, int aChunks, const Operand& b, int bChunks);

/// Joins neighbouring steps of a block where one operation does the same: signals, waits and flushes of different
/// channels; copies of one source; sums into one accumulator; a transfer and the copies of what it stores (to peers, as
/// packets, through a switch); these also where only waits lie between, which then come first. No copies to where the
/// data is are left.
std::vector<Step> fuse(const Draft& draft, const std::vector<Step>& steps);

/// Leaves out copies of chunks to themselves.
void dropSelfCopies(const Draft& draft, std::vector<Step>& steps);

/// Has transfers read packets, and the caller's input, where they are: a copy of them that only a later transfer of the
/// block reads, or that it replaces by its result, is left out if nothing but transfers lies in between. (Copy
/// propagation.)
void forwardCopies(Draft& draft);

/// Leaves out stores to scratch that no step reads, of transfers that have other destinations.
void dropUnreadStores(Draft& draft);

/// Makes one chunk of several that all transfers treat alike: a block transfers chunks one after another.
void joinChunks(Draft& draft);

/// Adds a Sync wherever two operations of a block need one, and drops those that order nothing.
std::vector<Step> insertSyncs(const Draft& draft, const std::vector<Step>& steps, SyncScope scope);

/// Which chunk each of the instances of a chunk is.
enum class Replication {
  Interleaved,  ///< those of one chunk follow each other; an operation of several chunks becomes as many
  Batched       ///< each instance has a contiguous piece of each part
};

/// The same plan, done `instances` times, each for a share of the data by blocks, channels, semaphores and barriers of
/// its own. Chunks become smaller.
Draft replicate(const Draft& draft, int instances, Replication replication);
/// Interleaved unless an operation has several chunks.
Replication fittingReplication(const Draft& draft);

/// Of each channel of each rank, the other end: an index into the channels of its peer; -1 if there is none.
std::vector<std::vector<int>> otherEnds(const Draft& draft);
/// Adds what is missing so that each channel has another end.
void completeChannels(Draft& draft);

/// Throws Error(InvalidUsage) unless each channel is waited on as often as it is signalled, in loops and outside.
/// `channelOrigins`: where each channel of each rank was made, for the message.
void requireMatchedSignals(const Draft& draft, const std::vector<std::vector<std::string>>& channelOrigins);

}  // namespace mscclpp::plan
