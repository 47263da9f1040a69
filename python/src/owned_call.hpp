// A call of a collective as a Python object.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "mscclpp/kernels/collectives.hpp"

namespace mscclpp::python {

/// A call with what it points to.
struct OwnedCall {
  CollectiveCall call;
  std::vector<std::size_t> counts;
  std::vector<std::size_t> offsets;
  std::array<std::byte, 8> factor{};

  OwnedCall() = default;
  OwnedCall(const OwnedCall&) = delete;
  OwnedCall& operator=(const OwnedCall&) = delete;
};

}  // namespace mscclpp::python
