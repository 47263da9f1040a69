// A thread of the library, which does not receive the application's signals.
#pragma once

#include <pthread.h>

#include <csignal>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/base/logger.hpp"

namespace mscclpp::detail {

/// Starts a thread that blocks all signals. `name` is shown by debuggers, 15 characters at most. Throws SysError if the
/// system has no thread left.
template <class Body>
std::thread startServiceThread(const char* name, Body body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  try {
    thread = std::thread(std::move(body));
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw SysError(
        std::string("cannot start the thread ") + name + " (the limit of processes and threads is ulimit -u)",
        error.code().value());
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

/// The text of an exception, for the log and for errors.
inline std::string messageOf(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

/// The same for a body that may throw, for example for lack of memory. The exception is logged and passed to `fail`,
/// which must not throw: it ends what waits for the thread.
template <class Body, class Fail>
std::thread startServiceThread(const char* name, Body body, Fail fail) {
  return startServiceThread(name, [name, body = std::move(body), fail = std::move(fail)]() noexcept {
    try {
      body();
    } catch (...) {
      const std::exception_ptr failure = std::current_exception();
      fail(failure);
      try {
        logMessage(LogLevel::Error, LogSubsystem::Net, "the thread ", name, " has ended: ", messageOf(failure));
      } catch (const std::exception&) {  // out of memory for the log line
      }
    }
  });
}

}  // namespace mscclpp::detail
