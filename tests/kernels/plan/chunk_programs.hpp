// Chunk programs that several tests use.
#pragma once

#include "mscclpp/kernels/plan/chunk_program.hpp"

namespace mscclpp::msccl {

using plan::BufferKind;

/// Each part travels around the ring, in place.
inline MSCCLProgram ringAllGather(ProgramOptions options, int channel = -1) {
  const int ranks = options.collective.ranks, factor = options.collective.chunkFactor;
  MSCCLProgram program(options);
  for (int r = 0; r < ranks; ++r) {
    ChunkRef c = program.chunk(r, BufferKind::Input, 0, factor).copy(r, BufferKind::Output, r * factor);
    for (int hop = 1; hop < ranks; ++hop) c = c.copy((r + hop) % ranks, "", -1, {.ch = channel});
  }
  return program;
}

/// Reduce-scatter, then all-gather, around the ring; in place.
inline MSCCLProgram ringAllReduce(ProgramOptions options, int channel = -1) {
  const int ranks = options.collective.ranks, factor = options.collective.chunkFactor;
  MSCCLProgram program(options);
  for (int part = 0; part < ranks; ++part) {
    ChunkRef c = program.chunk((part + 1) % ranks, BufferKind::Input, part * factor, factor);
    for (int hop = 2; hop <= ranks; ++hop) {
      ChunkRef next = program.chunk((part + hop) % ranks, BufferKind::Input, part * factor, factor);
      c = next.reduce(c, {.ch = channel});
    }
    for (int hop = 1; hop < ranks; ++hop) c = c.copy((part + hop) % ranks, "", -1, {.ch = channel});
  }
  return program;
}

/// Every rank sends to every other.
inline MSCCLProgram allPairsAllReduce(ProgramOptions options) {
  const int ranks = options.collective.ranks, factor = options.collective.chunkFactor;
  MSCCLProgram program(options);
  for (int r = 0; r < ranks; ++r) {
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != r) program.chunk(r, BufferKind::Input, peer * factor, factor).copy(peer, "parts", r * factor);
    }
  }
  for (int r = 0; r < ranks; ++r) {
    ChunkRef sum = program.chunk(r, BufferKind::Input, r * factor, factor);
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != r) sum.reduce(program.chunk(r, "parts", peer * factor, factor));
    }
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != r) sum.copy(peer);
    }
  }
  return program;
}

}  // namespace mscclpp::msccl
