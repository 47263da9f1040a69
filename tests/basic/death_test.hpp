// Runs code that is expected to terminate its process in a child process.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <initializer_list>

namespace mscclpp::test {

/// The signal that terminates a process which runs `body`; 0 if body returns.
template <class Body>
int terminationSignal(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    for (int each : {SIGILL, SIGTRAP, SIGABRT}) std::signal(each, SIG_DFL);  // without doctest's handlers
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace mscclpp::test
