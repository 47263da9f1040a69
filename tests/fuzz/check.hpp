// What every fuzzer needs: a check that stops the process, and what a parser may throw.
#pragma once

#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "../../host/unique_fd.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp::fuzz {

/// A broken promise of the code under test. libFuzzer keeps the input.
inline void check(bool condition, const char* promise) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

/// Whether `parse` took its input. It may refuse it with Error(InvalidUsage); anything else ends the fuzzer.
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
