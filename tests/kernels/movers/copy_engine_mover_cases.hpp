// Cases of CopyEngineMover that run on CPU ranks and on GPUs: whole registered buffers are compared after each call.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/registered_buffers.hpp"
#include "mscclpp/kernels/copy_engine_mover.hpp"

namespace mscclpp::test {

using MovedBytes = std::vector<unsigned char>;
inline constexpr unsigned char movePoison = 0xa5;

/// The input of a rank in a call.
inline MovedBytes moveInput(int rank, unsigned call, std::size_t bytes) {
  std::minstd_rand random(call * 64 + static_cast<unsigned>(rank) + 1);
  MovedBytes input(bytes);
  for (auto& byte : input) byte = static_cast<unsigned char>(random() >> 8);
  return input;
}

struct MoveCase {
  CollectiveType collective;
  std::size_t bytes;
  int root;
  bool inPlace;
};

/// Sizes and positions of a call, and its result.
class ExpectedMove {
 public:
  ExpectedMove(const MoveCase& move, int ranks, unsigned call) : move_(move), ranks_(ranks), call_(call) {}

  std::size_t inputBytes() const {
    return is(CollectiveType::AllToAll) || is(CollectiveType::Scatter) ? parts() : move_.bytes;
  }
  MovedBytes input(int rank) const { return moveInput(rank, call_, inputBytes()); }
  /// Whether the input of `rank` is in its registered buffer.
  bool isInPlace(int rank) const {
    return move_.inPlace && !is(CollectiveType::AllToAll) && (!hasRoot(move_.collective) || rank == move_.root);
  }
  /// The offset of the output of `rank`: behind the parts for the ranks before the root, if that scatters in place.
  std::size_t outputOffset(int rank) const { return is(CollectiveType::Scatter) && isInPlace(rank) ? part(rank) : 0; }
  /// The offset of the input of `rank`, if it is in place.
  std::size_t inputOffset(int rank) const {
    return is(CollectiveType::AllGather) || is(CollectiveType::Gather) ? part(rank) : 0;
  }
  /// What the output of `rank` is afterwards; empty: not written.
  MovedBytes output(int rank) const {
    if (is(CollectiveType::Broadcast)) return input(move_.root);
    if (is(CollectiveType::Scatter)) return partOf(input(move_.root), rank);
    if (is(CollectiveType::Gather) && rank != move_.root) return {};
    MovedBytes output;
    for (int from = 0; from < ranks_; ++from) {
      const MovedBytes all = input(from);
      const MovedBytes one = is(CollectiveType::AllToAll) ? partOf(all, rank) : all;
      output.insert(output.end(), one.begin(), one.end());
    }
    return output;
  }

 private:
  bool is(CollectiveType collective) const { return move_.collective == collective; }
  std::size_t part(int rank) const { return static_cast<std::size_t>(rank) * move_.bytes; }
  std::size_t parts() const { return part(ranks_); }
  MovedBytes partOf(const MovedBytes& all, int rank) const {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(part(rank));
    return {begin, begin + static_cast<std::ptrdiff_t>(move_.bytes)};
  }

  MoveCase move_;
  int ranks_;
  unsigned call_;
};

/// Calls of one mover, whose outputs are in one registered buffer per rank. Memory: registrable memory of the device,
/// with data(), write(offset, bytes) and read(); see copy_engine_mover_test.cpp.
template <class Memory>
class MoveTester {
 public:
  MoveTester(Communicator& communicator, const CopyEngineOptions& options, std::size_t mostBytes)
      : rank_(communicator.bootstrap()->getRank()),
        ranks_(communicator.bootstrap()->getNranks()),
        bufferBytes_(2 * margin + mostBytes * static_cast<std::size_t>(ranks_)),
        memory_(bufferBytes_),
        other_(bufferBytes_),
        registration_(buffers_.add(RegisteredBuffer(communicator, memory_.data(), bufferBytes_))),
        mover_(communicator, Memory::type, options) {}

  CopyEngineMover& mover() { return mover_; }

  /// Writes the input, moves, and compares the whole buffer, without any synchronisation with other ranks than the
  /// call's own.
  void check(const MoveCase& move, CUstream_st* stream) {
    const ExpectedMove expected(move, ranks_, ++call_);
    const std::size_t start = margin + call_ % 5;  // misaligned
    MovedBytes buffer(bufferBytes_, movePoison);
    const MovedBytes input = expected.input(rank_);
    const bool inPlace = expected.isInPlace(rank_);
    const std::size_t inputAt = start + expected.inputOffset(rank_);
    if (inPlace) std::copy(input.begin(), input.end(), at(buffer, inputAt));
    memory_.write(0, buffer);
    other_.write(call_ % 3, input);

    const auto match = buffers_.find(memory_.data() + start, bufferBytes_ - start);
    REQUIRE(match.has_value());
    Window<> outputs = match->buffer->window().subWindow(match->offset);
    for (int rank = 0; rank < ranks_; ++rank) outputs.base[rank] += expected.outputOffset(rank);
    const char* from = inPlace ? memory_.data() + inputAt : other_.data() + call_ % 3;
    mover_.move(move.collective, from, outputs, move.bytes, move.root, stream);
    Memory::synchronize(stream);
    mover_.check();

    const MovedBytes output = expected.output(rank_);
    std::copy(output.begin(), output.end(), at(buffer, start + expected.outputOffset(rank_)));
    CHECK(memory_.read() == buffer);
    const MovedBytes others = other_.read();
    CHECK(std::equal(input.begin(), input.end(), others.begin() + call_ % 3));
  }

  /// All collectives, roots and ways of passing the input.
  void checkAll(const std::vector<std::size_t>& sizes, CUstream_st* stream) {
    for (const std::size_t bytes : sizes) {
      for (const bool inPlace : {false, true}) {
        for (const CollectiveType collective :
             {CollectiveType::AllGather, CollectiveType::AllToAll, CollectiveType::Broadcast, CollectiveType::Gather,
              CollectiveType::Scatter}) {
          for (const int root : {0, ranks_ - 1}) {
            if (root != 0 && !hasRoot(collective)) continue;
            INFO(nameOf(collective) << ", " << bytes << " bytes, root " << root << ", rank " << rank_ << " of "
                                    << ranks_ << (inPlace ? ", in place" : ""));
            check({collective, bytes, root, inPlace}, stream);
          }
        }
      }
    }
  }

 private:
  static constexpr std::size_t margin = 64;
  static MovedBytes::iterator at(MovedBytes& bytes, std::size_t offset) {
    return bytes.begin() + static_cast<std::ptrdiff_t>(offset);
  }

  int rank_;
  int ranks_;
  std::size_t bufferBytes_;
  Memory memory_;
  Memory other_;
  RegisteredBuffers buffers_;
  RegisteredBuffers::Handle registration_;
  CopyEngineMover mover_;
  unsigned call_ = 0;
};

/// A rank of 3 that does not call: the others' waits end, name it, and their later calls fail at once; when it calls
/// after all, its own call fails, since the others have not performed theirs.
template <class Memory>
void failBecauseRankOneIsLate(std::shared_ptr<Bootstrap> bootstrap) {
  Communicator communicator(bootstrap);
  const int ranks = bootstrap->getNranks();
  Memory memory(100 * static_cast<std::size_t>(ranks));
  Memory input(100);
  const RegisteredBuffer outputs(communicator, memory.data(), memory.bytes());
  CopyEngineMover mover(communicator, Memory::type);
  const auto messageOf = [&](const std::function<void()>& call, ErrorCode code) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      CHECK(error.getErrorCode() == code);
      return error.what();
    }
    return "nothing was thrown";
  };
  const auto gather = [&] {
    mover.allGather(input.data(), outputs.window(), 100);
    Memory::synchronize(nullptr);
    mover.check();
  };
  const bool isLate = bootstrap->getRank() == 1;
  for (const bool isTurnOfLateRank : {false, true}) {
    if (isLate == isTurnOfLateRank) {
      const std::string message = messageOf(gather, ErrorCode::Timeout);
      INFO(message);
      CHECK(message.find("waited for a team barrier of rank") != std::string::npos);
      CHECK((isLate || message.find("of rank 1 past its deadline") != std::string::npos));
      CHECK(messageOf(gather, ErrorCode::Timeout) == message);
    }
    bootstrap->barrier();
  }
}

}  // namespace mscclpp::test
