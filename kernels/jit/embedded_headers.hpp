// The device headers as part of the library, so that a program finds them wherever it runs.
#pragma once

#include <span>

namespace mscclpp::jit::detail {

/// Both texts end in a zero.
struct EmbeddedHeader {
  const char* name;  ///< "mscclpp/config.hpp"
  const char* text;
};

/// All that a kernel can include, sorted by name. Written by embed_headers.py during the build.
std::span<const EmbeddedHeader> embeddedHeaders();

}  // namespace mscclpp::jit::detail
