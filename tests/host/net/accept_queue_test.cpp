// Accepting connections with and without free descriptors.
#include "host/net/accept_queue.hpp"

#include <doctest/doctest.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <utility>

#include "host/base/process_identity.hpp"
#include "host/net/local_socket.hpp"
#include "host/net/socket.hpp"
#include "tests/host/process_resources.hpp"

using namespace mscclpp::detail;
using namespace std::chrono_literals;
using mscclpp::test::DescriptorLimit;

namespace {

/// A listener at a name of its own.
struct Local {
  std::string name = "mscclpp-accept-queue-test-" + hexText(randomId());
  UniqueFd socket = listenLocal(name);

  UniqueFd connect() const {
    int errorNumber = 0;
    return connectLocal(name, Deadline::after(20s), errorNumber);
  }
};

// How often poll reports the queue at once, until a pause ends or 20 s have passed.
int pollsDuringPause(const AcceptQueue& queue) {
  const Deadline deadline = Deadline::after(20s);
  int reports = 0;
  while (queue.isPaused() && !deadline.expired()) {
    pollfd entry = queue.pollEntry();
    reports += ::poll(&entry, 1, queue.pollTimeout(-1));
  }
  CHECK_FALSE(deadline.expired());
  return reports;
}

}  // namespace

TEST_CASE("connections are accepted in their order, local and over TCP") {
  Local local;
  AcceptQueue queue(std::move(local.socket), "clients");
  CHECK_FALSE(queue.accept());
  CHECK(queue.shortage() == 0);
  CHECK_FALSE(queue.isPaused());
  const UniqueFd first = local.connect(), second = local.connect();
  sendAll(first, "1", 1, Deadline::after(20s));
  sendAll(second, "2", 1, Deadline::after(20s));
  for (const char expected : {'1', '2'}) {
    const UniqueFd accepted = queue.accept();
    char received = 0;
    REQUIRE(recvAll(accepted, &received, 1, Deadline::after(20s)) == TransferStatus::Done);
    CHECK(received == expected);
  }

  UniqueFd listener = bindTo({SocketAddress::Family::V4, 0, 0, {127, 0, 0, 1}});
  startListening(listener);
  AcceptQueue tcp(std::move(listener), "clients");
  int errorNumber = 0;
  const UniqueFd client = tryConnect(localAddressOf(tcp.listener()), Deadline::after(20s), errorNumber);
  REQUIRE(waitReadable(tcp.listener(), Deadline::after(20s)));
  CHECK(tcp.accept());
}

TEST_CASE("a connection waits while there is no descriptor for it, and poll does not report it") {
  Local local;
  AcceptQueue queue(std::move(local.socket), "clients");
  const UniqueFd client = local.connect();
  {
    const DescriptorLimit limit(0);
    for (int i = 0; i < 2; ++i) {
      CHECK_FALSE(queue.accept());
      CHECK(queue.shortage() == EMFILE);
      CHECK(pollsDuringPause(queue) == 0);
    }
  }
  CHECK(queue.pollEntry().fd == queue.listener().get());
  CHECK(queue.pollTimeout(-1) == -1);
  CHECK(queue.accept());
  CHECK(queue.shortage() == 0);
}

TEST_CASE("with a descriptor in reserve one connection at a time is accepted") {
  Local local;
  AcceptQueue queue(std::move(local.socket), "clients", AcceptQueue::Reserve::OneDescriptor);
  const UniqueFd first = local.connect(), second = local.connect(), third = local.connect();
  const DescriptorLimit limit(0);
  {
    const UniqueFd accepted = queue.accept();
    CHECK(accepted);
    CHECK_FALSE(queue.hasReserve());
    CHECK_FALSE(queue.restoreReserve());
    CHECK_FALSE(queue.accept());
    CHECK(queue.shortage() == EMFILE);
  }
  CHECK(queue.restoreReserve());
  CHECK(queue.accept());
  // accept() takes the reserve again by itself, also if it then finds no connection.
  CHECK(queue.accept());
  CHECK_FALSE(queue.accept());
  CHECK(queue.shortage() == 0);
  CHECK(queue.hasReserve());
}

TEST_CASE("closing refuses connections and ends those that wait, though another process holds the listener") {
  Local local;
  const UniqueFd inherited(::dup(local.socket.get()));
  AcceptQueue queue(std::move(local.socket), "clients");
  const UniqueFd client = local.connect();
  queue.close();
  char byte;
  CHECK(recvAll(client, &byte, 1, Deadline::after(20s)) == TransferStatus::Closed);
  CHECK_FALSE(local.connect());
}
