#include "host/base/service_thread.hpp"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <stdexcept>
#include <string>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "tests/host/ranks.hpp"

using namespace mscclpp;
using test::ChildProcess;

namespace {

std::atomic<bool> hasThreads = true;

}  // namespace

// Replaces the C library's: at times the system has no thread left.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                              void* argument) {
  using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create*>(::dlsym(RTLD_NEXT, "pthread_create"));
  return hasThreads ? create(thread, attributes, start, argument) : EAGAIN;
}

TEST_CASE("a thread that cannot be started is an error that names the limit") {
  hasThreads = false;
  CHECK_THROWS_WITH_AS(detail::startServiceThread("test", [] {}), doctest::Contains("ulimit -u"), SysError);
  hasThreads = true;
  std::atomic<bool> hasRun = false;
  detail::startServiceThread("test", [&] { hasRun = true; }).join();
  CHECK(hasRun);
}

TEST_CASE("a rank that cannot start its thread tells the other ranks why it fails") {
  const UniqueId id = TcpBootstrap::createUniqueId();
  const auto outcomes = test::onProcesses(2, [&](int rank) {
    hasThreads = rank != 0;
    TcpBootstrap bootstrap(rank, 2);
    std::string text;
    try {
      bootstrap.initialize(id);
    } catch (const BaseError& error) {
      text = error.what();
    }
    hasThreads = true;
    if (rank == 0) {
      if (text.find("cannot start the thread") == std::string::npos) throw std::runtime_error(text);
      try {
        bootstrap.barrier();
      } catch (const Error& error) {
        text = error.what();
      }
      if (text.find("make a new TcpBootstrap") == std::string::npos) throw std::runtime_error(text);
    } else if (text.find("rank 0") == std::string::npos) {
      throw std::runtime_error("rank 1: " + text);
    }
  });
  CHECK(outcomes == test::Outcomes(2));
}
