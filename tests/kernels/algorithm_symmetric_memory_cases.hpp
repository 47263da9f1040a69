// Algorithms whose outputs lie in symmetric memory: the cases of CPU ranks and GPUs. The test programs run with an
// MSCCLPP_ALGO that selects algorithms which need registration for every size.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "every_algorithm.hpp"
#include "mscclpp/algorithm.hpp"
#include "mscclpp/kernels/collectives.hpp"

namespace mscclpp::test {

/// What the cases know of a rank.
struct SymmetricRank {
  std::shared_ptr<Communicator> communicator;
  Bootstrap& bootstrap;
  int rank;
  int ranks;
  DeviceType device;
  const AlgorithmCollection& collection;
  CUstream_st* stream = nullptr;

  std::shared_ptr<Algorithm> find(const std::string& collective, const std::string& name) const {
    return collection.getAlgorithmsByCollective(collective).at(name);
  }
};

/// The algorithms that use symmetric memory: those that need it, and those that choose by size.
inline std::vector<std::shared_ptr<Algorithm>> symmetricAlgorithms(const AlgorithmCollection& collection) {
  std::vector<std::shared_ptr<Algorithm>> found;
  std::set<std::string> collectives;
  for (const auto& algorithm : sortedAlgorithms(collection)) {
    if (!needsSymmetricMemory(*algorithm)) continue;
    found.push_back(algorithm);
    collectives.insert(algorithm->collective());
  }
  for (const std::string& collective : collectives) {
    found.push_back(collection.getAlgorithmsByCollective(collective).at("mscclpp_" + collective));
  }
  return found;
}

// Buffer: memory of the device that peers can map. It has Buffer(std::size_t bytes), std::byte* data(), and, of its
// beginning, void write(const Bytes&) and Bytes read(std::size_t bytes, CUstream_st*), after the work of the stream.

/// Every algorithm that uses symmetric memory, with whole outputs and what is around them.
template <class Buffer>
void checkSymmetricAlgorithms(const SymmetricRank& rank, const std::vector<std::size_t>& counts) {
  Buffer source(std::size_t{4} << 20);
  Buffer target(std::size_t{4} << 20);
  unsigned calls = 0;
  for (const auto& algorithm : symmetricAlgorithms(rank.collection)) {
    const auto perform = [&](CollectiveCall call, Bytes& from, Bytes* to) {
      const auto inputAt = reinterpret_cast<std::size_t>(call.input);
      const auto outputAt = reinterpret_cast<std::size_t>(call.output);
      Buffer& output = to == nullptr ? source : target;
      rank.bootstrap.barrier();  // no rank writes what another one still compares, or has stored to
      source.write(from);
      if (to != nullptr) target.write(*to);
      if (call.input != nullptr) call.input = source.data() + inputAt;
      if (call.output != nullptr) call.output = output.data() + outputAt;
      call.stream = rank.stream;
      rank.bootstrap.barrier();
      CHECK(executeCall(*algorithm, rank.communicator, rank.ranks, call, true) == CommResult::CommSuccess);
      from = source.read(from.size(), rank.stream);
      if (to != nullptr) *to = target.read(to->size(), rank.stream);
    };
    checkAlgorithm(*algorithm, rank.rank, rank.ranks, counts, perform, calls, true);
  }
  CHECK(calls > 0);
  rank.bootstrap.barrier();
  if (rank.rank == 0) symmetricAlgorithms(rank.collection).front()->reset();
  rank.bootstrap.barrier();
}

/// The same bits as those of `Collectives` with a registered output.
template <class Buffer>
void checkSameAsCollectives(const SymmetricRank& rank) {
  const std::size_t count = 5003;
  const std::size_t bytes = count * 4 * static_cast<std::size_t>(rank.ranks);
  Buffer source(bytes);
  Buffer target(bytes);
  {
    Collectives collectives(rank.communicator, rank.device, Collectives::Algorithms::All);
    const auto registration = collectives.registerBuffer(target.data(), bytes);
    source.write(inputBytes(DataType::FLOAT32, bytes / 4, rank.ranks, 5)[static_cast<std::size_t>(rank.rank)]);
    for (const auto& algorithm : symmetricAlgorithms(rank.collection)) {
      CAPTURE(algorithm->name());
      CollectiveCall call{.collective = typeOf(algorithm->collective()),
                          .input = source.data(),
                          .output = target.data(),
                          .count = count,
                          .root = rank.ranks - 1,
                          .stream = rank.stream};
      const std::string prefix = "mscclpp_" + algorithm->collective() + "_";
      if (algorithm->name().starts_with(prefix)) call.algorithm = algorithm->name().substr(prefix.size());
      const auto outputOf = [&](auto&& perform) {
        rank.bootstrap.barrier();
        target.write(Bytes(bytes, poisonByte));
        rank.bootstrap.barrier();
        perform();
        return target.read(bytes, rank.stream);
      };
      const Bytes wanted = outputOf([&] { collectives.run(call); });
      const Bytes got = outputOf([&] {
        CHECK(executeCall(*algorithm, rank.communicator, rank.ranks, call, true) == CommResult::CommSuccess);
      });
      CHECK(got == wanted);
      CHECK(wanted != Bytes(bytes, poisonByte));
    }
    rank.bootstrap.barrier();
  }
  rank.bootstrap.barrier();
  if (rank.rank == 0) symmetricAlgorithms(rank.collection).front()->reset();
  rank.bootstrap.barrier();
}

inline constexpr std::size_t gatheredBytes = 40'000;  ///< from 8 ranks, and what is around them

/// All-gathers 1000 numbers of each rank to a byte of a buffer, and returns what the buffer holds then.
template <class Source, class Target>
Bytes gatherTo(const SymmetricRank& rank, Source& source, Target& target, std::size_t offset, bool symmetricMemory) {
  const std::size_t bytes = 4000;
  source.write(Bytes(bytes, static_cast<unsigned char>(rank.rank + 1)));
  target.write(Bytes(gatheredBytes, poisonByte));
  rank.bootstrap.barrier();
  const CollectiveCall call{.collective = CollectiveType::AllGather,
                            .input = source.data(),
                            .output = target.data() + offset,
                            .count = bytes / 4,
                            .stream = rank.stream};
  CHECK(executeCall(*rank.find("allgather", "mscclpp_allgather"), rank.communicator, rank.ranks, call,
                    symmetricMemory) == CommResult::CommSuccess);
  Bytes result = target.read(gatheredBytes, rank.stream);
  rank.bootstrap.barrier();
  return result;
}
/// What gatherTo() returns.
inline Bytes gathered(int ranks, std::size_t offset) {
  const std::size_t bytes = 4000;
  Bytes wanted(gatheredBytes, poisonByte);
  for (int r = 0; r < ranks; ++r) {
    std::fill_n(wanted.begin() + static_cast<std::ptrdiff_t>(offset + static_cast<std::size_t>(r) * bytes), bytes,
                static_cast<unsigned char>(r + 1));
  }
  return wanted;
}

/// A call that does not say that its memory is symmetric may have its outputs anywhere, also in memory of which an
/// earlier call has said it.
template <class Buffer>
void checkOtherOffsets(const SymmetricRank& rank) {
  Buffer source(std::size_t{64} << 10);
  Buffer target(std::size_t{64} << 10);
  CHECK(gatherTo(rank, source, target, 16, true) == gathered(rank.ranks, 16));
  const auto offset = static_cast<std::size_t>(rank.rank) * 64;
  CHECK(gatherTo(rank, source, target, offset, false) == gathered(rank.ranks, offset));
  CHECK(gatherTo(rank, source, target, 32, true) == gathered(rank.ranks, 32));
  rank.bootstrap.barrier();
  if (rank.rank == 0) rank.find("allgather", "mscclpp_allgather")->reset();
  rank.bootstrap.barrier();
}

}  // namespace mscclpp::test
