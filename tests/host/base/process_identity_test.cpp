// What identifies processes to others.
#include "host/base/process_identity.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/base/process_status.hpp"

using namespace mscclpp::detail;

TEST_CASE("a process has one identity as long as it runs") {
  const ProcessIdentity self = ProcessIdentity::of(::getpid());
  CHECK(self.pid == ::getpid());
  CHECK(self.startTime != 0);
  CHECK(self == ProcessIdentity::of(::getpid()));
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const ProcessIdentity other = ProcessIdentity::of(child);
  CHECK(other.pid == child);
  CHECK(other.boot == self.boot);
  CHECK(other.pidNamespace == self.pidNamespace);
  const auto status = statusOf(child);
  REQUIRE(status);
  CHECK(status->parent == ::getpid());
  CHECK(status->session == ::getsid(0));
  CHECK(status->threads >= 1);  // a sanitizer may add one
  ::kill(child, SIGKILL);
  CHECK(::waitpid(child, nullptr, 0) == child);
  CHECK_FALSE(statusOf(child));
  CHECK(ProcessIdentity::of(child) == ProcessIdentity{});
}
