// The collective that a program computes, with the sizes of its buffers in chunks.
#pragma once

#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan {

/// What the programs of both languages start from. The number of chunks of each buffer follows from it, as in MSCCL and
/// MSCCL++: a rank's part has chunkFactor chunks, and the buffers of an all-reduce ranks * chunkFactor.
struct Collective {
  CollectiveKind kind = CollectiveKind::AllReduce;
  int ranks = 0;
  int chunkFactor = 1;
  bool inPlace = false;
  int root = 0;  ///< Broadcast, Reduce, Gather, Scatter
  /// Custom: the chunks of the buffers of every rank.
  int inputChunks = 0;
  int outputChunks = 0;

  /// Header::chunksPerPart.
  int chunksPerPart() const {
    switch (kind) {
      case CollectiveKind::AllReduce:
        return ranks * chunkFactor;
      case CollectiveKind::Custom:
        return 1;
      default:
        return chunkFactor;
    }
  }
};

/// The most instances of a program. The blocks of all of them are resident on a GPU at once: 128 is what one has room
/// for.
inline constexpr int maxInstances = 128;

inline Collective AllReduce(int ranks, int chunkFactor = 1, bool inPlace = false) {
  return {CollectiveKind::AllReduce, ranks, chunkFactor, inPlace};
}
inline Collective AllGather(int ranks, int chunkFactor = 1, bool inPlace = false) {
  return {CollectiveKind::AllGather, ranks, chunkFactor, inPlace};
}
inline Collective ReduceScatter(int ranks, int chunkFactor = 1, bool inPlace = false) {
  return {CollectiveKind::ReduceScatter, ranks, chunkFactor, inPlace};
}
inline Collective AllToAll(int ranks, int chunkFactor = 1, bool inPlace = false) {
  return {CollectiveKind::AllToAll, ranks, chunkFactor, inPlace};
}
inline Collective SendRecv(int ranks, int chunkFactor = 1, bool inPlace = false) {
  return {CollectiveKind::SendReceive, ranks, chunkFactor, inPlace};
}
inline Collective Broadcast(int ranks, int chunkFactor = 1, bool inPlace = false, int root = 0) {
  return {CollectiveKind::Broadcast, ranks, chunkFactor, inPlace, root};
}
inline Collective Reduce(int ranks, int chunkFactor = 1, bool inPlace = false, int root = 0) {
  return {CollectiveKind::Reduce, ranks, chunkFactor, inPlace, root};
}
/// A collective whose result is not known to the library: MSCCL++'s, for tests of programs.
inline Collective TestCollective(int ranks, int inputChunks, int outputChunks) {
  return {CollectiveKind::Custom, ranks, 1, false, 0, inputChunks, outputChunks};
}

}  // namespace mscclpp::plan
