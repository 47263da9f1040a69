// A thread of the library's own, which leaves the application's signals alone.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace mscclpp::detail {

/// Starts a thread that takes no signals. `name` is what a debugger shows, 15 characters at most.
template <class Body>
std::thread startServiceThread(const char* name, Body body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  try {
    thread = std::thread(std::move(body));
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace mscclpp::detail
