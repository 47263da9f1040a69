// Multicast memory of emulated ranks. These tests have none on GPUs: the switch's instructions are compiled, but not
// run.
#pragma once

#include "emulated.hpp"
#include "mscclpp/arch/multimem.hpp"

namespace mscclpp::test {

/// A multicast address of a buffer of every rank.
class EmulatedMulticast {
 public:
  EmulatedMulticast(const Window<>& window, int ranks) {
    replicas_.count = ranks;
    for (int r = 0; r < ranks; ++r) replicas_.base[r] = window.at(r);
  }
  arch::MulticastAddress address(std::size_t offset = 0) { return {reinterpret_cast<std::byte*>(&replicas_), offset}; }

 private:
  arch::Replicas replicas_{};
};

}  // namespace mscclpp::test
