// The cache of compiled programs on disk.
#pragma once

#include <cstdint>

namespace mscclpp::jit {

// Folder jit/ of MSCCLPP_CACHE_DIR has one file for each program, named by a hash of all that the compilation depends
// on: source, headers, options, architecture, NVRTC's version. Files can be deleted at any time. Nothing is deleted
// automatically; a program of one collective takes some 20 to 100 KB.

/// Deletes the programs that were not used for the longest time, until the rest takes `maxBytes` bytes at most. Returns
/// the bytes that remain. Other processes may use the cache at the same time. A file that cannot be deleted stays.
std::uint64_t pruneCache(std::uint64_t maxBytes);

}  // namespace mscclpp::jit
