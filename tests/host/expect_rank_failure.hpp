// Expects that a call ends because another rank failed or left.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <string>

#include "mscclpp/host/base/error.hpp"
#include "tests/host/ranks.hpp"

namespace mscclpp::test {

/// `call` must throw Error(RemoteError) with `text` in its message, long before its own timeout.
inline void expectRankFailure(const std::string& text, const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  try {
    call();
    CHECK_MESSAGE(false, "nothing was thrown where \"" << text << "\" was expected");
  } catch (const Error& error) {
    CAPTURE(error.what());
    CHECK(error.getErrorCode() == ErrorCode::RemoteError);
    CHECK(std::string(error.what()).find(text) != std::string::npos);
  }
  CHECK(secondsSince(start) < soon);
}

}  // namespace mscclpp::test
