// Checks that a call throws, as a rule since it is a wrong use.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::test {

/// The call throws Error(code), with this part in its message.
inline void expectError(ErrorCode code, const std::string& part, const std::function<void()>& call) {
  try {
    call();
    FAIL_CHECK("no exception was thrown; expected \"" << part << "\"");
  } catch (const Error& error) {
    CHECK(error.getErrorCode() == code);
    const std::string message = error.what();
    CHECK_MESSAGE(message.find(part) != std::string::npos, message);
  }
}
inline void expectInvalidUsage(const std::string& part, const std::function<void()>& call) {
  expectError(ErrorCode::InvalidUsage, part, call);
}

}  // namespace mscclpp::test
