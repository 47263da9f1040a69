// Shared by the fuzzers: a check that aborts the process, and the exceptions that a parser may throw.
#pragma once

#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "host/base/unique_fd.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::fuzz {

/// A broken invariant of the code under test. libFuzzer keeps the input.
inline void check(bool condition, const char* invariant) {
  if (condition) return;
  std::fprintf(stderr, "violated invariant: %s\n", invariant);
  std::abort();
}

/// Whether `parse` accepted its input. It may reject it with Error(InvalidUsage); any other exception ends the fuzzer.
template <class Parse>
bool accepts(const Parse& parse) {
  try {
    parse();
    return true;
  } catch (const Error& error) {
    check(error.getErrorCode() == ErrorCode::InvalidUsage, error.what());
    return false;
  }
}

/// The two ends of a connection, neither of which blocks.
inline std::pair<detail::UniqueFd, detail::UniqueFd> makeSocketPair() {
  int ends[2];
  check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0, "there is a socket pair");
  return {detail::UniqueFd(ends[0]), detail::UniqueFd(ends[1])};
}

}  // namespace mscclpp::fuzz
