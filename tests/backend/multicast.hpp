// Multicast memory of emulated ranks. There is none of it for GPUs here: what the switch does has been compiled, and never run.
#pragma once

#include "backend/emulated.hpp"
#include "mscclpp/arch/multimem.hpp"

namespace mscclpp::test {

/// The address that stands for a buffer of every rank.
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
