// The order in which a rank addresses its peers.
#include "mscclpp/basic/team.hpp"

#include <doctest/doctest.h>

#include <set>

using namespace mscclpp;

TEST_CASE("team: a rank addresses every peer once, and no two ranks address the same peer in a step") {
  for (int size = 2; size <= 9; ++size) {
    for (std::uint32_t block = 0; block < 2 * static_cast<std::uint32_t>(size); ++block) {
      const int rotation = Team<>(0, size).rotation(block);
      for (int rank = 0; rank < size; ++rank) {
        const Team<> team(rank, size);
        std::set<int> visited;
        for (int i = 0; i < size - 1; ++i) visited.insert(team.peer(i, rotation));
        REQUIRE(visited.size() == static_cast<std::size_t>(size - 1));
        REQUIRE(visited.count(rank) == 0);
        REQUIRE(*visited.begin() >= 0);
        REQUIRE(*visited.rbegin() < size);
        REQUIRE(team.peer(0, rotation) == team.peer(static_cast<int>(block) % (size - 1)));
      }
      for (int i = 0; i < size - 1; ++i) {
        std::set<int> targets;
        for (int rank = 0; rank < size; ++rank) targets.insert(Team<>(rank, size).peer(i, rotation));
        REQUIRE(targets.size() == static_cast<std::size_t>(size));
      }
    }
  }
}

TEST_CASE("team: the other ranks have consecutive indices, in increasing order") {
  for (int rank = 0; rank < 5; ++rank) {
    int next = 0;
    for (int peer = 0; peer < 5; ++peer) {
      if (peer != rank) CHECK(peerIndex(rank, peer) == next++);
    }
    CHECK(peerIndex(rank, rank) >= 0);
    CHECK(peerIndex(rank, rank) <= next);
  }
}

TEST_CASE("team: a team of one has no rotation") {
  for (std::uint32_t block = 0; block < 3; ++block) CHECK(Team<>(0, 1).rotation(block) == 0);
}

TEST_CASE("team: the first peer is the next rank") {
  CHECK(Team<>(2, 4).peer(0) == 3);
  CHECK(Team<>(3, 4).peer(0) == 0);
  CHECK(Team<>(3, 4).peer(2) == 2);
}

TEST_CASE("team: a size fixed at compile time gives the same order as at run time") {
  for (int rank = 0; rank < 8; ++rank) {
    const Team<8> fixed(rank, 8);
    const Team<> free(rank, 8);
    CHECK(fixed.size() == 8);
    CHECK(fixed.rank() == free.rank());
    for (int i = 0; i < 7; ++i) CHECK(fixed.peer(i, 3) == free.peer(i, 3));
  }
}
