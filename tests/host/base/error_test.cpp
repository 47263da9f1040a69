// The error classes: codes, names and messages.
#include "mscclpp/host/base/error.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <cerrno>
#include <string>

#include "host/base/error_message.hpp"

using namespace mscclpp;

TEST_CASE("every code has a name") {
  CHECK(errorToString(ErrorCode::SystemError) == "SystemError");
  CHECK(errorToString(ErrorCode::InternalError) == "InternalError");
  CHECK(errorToString(ErrorCode::RemoteError) == "RemoteError");
  CHECK(errorToString(ErrorCode::InvalidUsage) == "InvalidUsage");
  CHECK(errorToString(ErrorCode::Timeout) == "Timeout");
  CHECK(errorToString(ErrorCode::Aborted) == "Aborted");
  CHECK(errorToString(ErrorCode::ExecutorError) == "ExecutorError");
  CHECK(errorToString(static_cast<ErrorCode>(99)) == "UnknownError");
}

TEST_CASE("an error message contains what failed and in which layer") {
  const Error error("no such rank", ErrorCode::InvalidUsage);
  CHECK(error.getErrorCode() == ErrorCode::InvalidUsage);
  CHECK(std::string(error.what()) == "no such rank (mscclpp failure: InvalidUsage)");

  const SysError system("cannot open a socket", EACCES);
  CHECK(system.getErrorCode() == EACCES);
  CHECK(std::string(system.what()) == "cannot open a socket (System failure: Permission denied)");
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const std::string most = std::to_string(limit.rlim_cur);
  CHECK(std::string(SysError("cannot open a socket", EMFILE).what()) ==
        "cannot open a socket (System failure: Too many open files: this process may have " + most +
            "; raise the limit with ulimit -n)");
  // The number where no library provides the text: in a build without CUDA, or without a driver.
  const auto either = [](const std::string& text, const char* first, const char* second) {
    return text == first || text == second;
  };
  CHECK(either(CudaError("copy", 2).what(), "copy (Cuda failure: 2)", "copy (Cuda failure: out of memory)"));
  CHECK(either(CuError("map", 2).what(), "map (Cu failure: 2)", "map (Cu failure: out of memory)"));
  CHECK(std::string(IbError("post", EINVAL).what()) == "post (Ib failure: Invalid argument)");
  CHECK(std::string(BaseError(7).what()) == "error 7");
}

TEST_CASE("a rethrown error keeps its code and message, and its class adds nothing twice") {
  const Error own("no such rank", ErrorCode::Aborted);
  CHECK(detail::messageOf(own) == "no such rank");
  CHECK(detail::codeOf(own) == ErrorCode::Aborted);
  CHECK(std::string(Error("first: " + detail::messageOf(own), detail::codeOf(own)).what()) ==
        "first: no such rank (mscclpp failure: Aborted)");
  const SysError system("cannot open a socket", EMFILE);
  CHECK(detail::messageOf(system) == system.what());
  CHECK(detail::codeOf(system) == ErrorCode::SystemError);
}

TEST_CASE("every error class is caught as BaseError and keeps its number") {
  int number = 0;
  try {
    throw CuError("map", 2);
  } catch (const BaseError& error) {
    number = error.getErrorCode();
  }
  CHECK(number == 2);
  CHECK_THROWS_AS(throw Error("", ErrorCode::Timeout), std::runtime_error);
}
