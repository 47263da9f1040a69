#include "token_exchange.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "handshake.hpp"
#include "mscclpp/host/error.hpp"
#include "socket.hpp"
#include "unique_fd.hpp"

namespace mscclpp::detail {

using namespace std::chrono_literals;

namespace {

// A client that got this far answers at once, or is not one of ours.
constexpr std::chrono::milliseconds patience = 1s;

UniqueFd makeSocket() {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) throw SysError("cannot open a local socket", errno);
  return socket;
}

// A name in Linux's abstract namespace: it starts with a zero byte and is no file.
socklen_t fillName(const std::string& job, sockaddr_un& address) {
  const Secret digest = secretFromText("mscclpp job " + job);
  std::string name(1, '\0');
  name += "mscclpp-" + std::to_string(::getuid()) + '-';
  for (std::uint8_t byte : digest) {
    name += "0123456789abcdef"[byte >> 4];
    name += "0123456789abcdef"[byte & 15];
  }
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
}

bool isSameUser(const UniqueFd& socket) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 &&
         credentials.uid == ::getuid();
}

}  // namespace

void offerToken(const std::string& job, const UniqueId& token, int numRanks, Deadline deadline) {
  if (numRanks == 1) return;
  UniqueFd listener = makeSocket();
  sockaddr_un address;
  const socklen_t length = fillName(job, address);
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    if (errno == EADDRINUSE) {
      throw Error("this job has a rank 0 on this host already: were two processes started as rank 0?",
                  ErrorCode::InvalidUsage);
    }
    throw SysError("cannot bind a local socket", errno);
  }
  if (::listen(listener.get(), SOMAXCONN) != 0) throw SysError("cannot listen on a local socket", errno);

  std::vector<bool> served(numRanks, false);
  for (int missing = numRanks - 1; missing > 0;) {
    // At every turn: callers that are no ranks of the job may come without end.
    if (deadline.expired()) {
      std::string absent;
      for (int rank = 1; rank < numRanks; ++rank) {
        if (!served[rank]) absent += (absent.empty() ? "" : ", ") + std::to_string(rank);
      }
      throw Error("not all ranks arrived within " + deadline.passed() + ": missing " + absent + " of " +
                      std::to_string(numRanks),
                  ErrorCode::Timeout);
    }
    UniqueFd client(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!client) {
      // Without descriptors to spare a caller waits in the queue, and poll would return at once.
      if (isOutOfDescriptors(errno)) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      pollfd entry{listener.get(), POLLIN, 0};
      if (::poll(&entry, 1, deadline.pollTimeout()) < 0 && errno != EINTR) throw SysError("poll", errno);
      continue;
    }
    const Deadline soon = deadline.orSooner(patience);
    std::int32_t rank = 0;
    if (!isSameUser(client) || recvAll(client, &rank, sizeof(rank), soon) != Transfer::Done) continue;
    if (rank <= 0 || rank >= numRanks) continue;
    if (sendAll(client, token.data(), token.size(), soon) != Transfer::Done || served[rank]) continue;
    served[rank] = true;
    --missing;
  }
}

UniqueId takeToken(const std::string& job, int rank, Deadline deadline) {
  sockaddr_un address;
  const socklen_t length = fillName(job, address);
  while (true) {
    UniqueFd socket = makeSocket();
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) == 0) {
      if (!isSameUser(socket)) {
        throw Error("a process of another user poses as rank 0 of this job: set MSCCLPP_COMM_ID and MSCCLPP_SECRET",
                    ErrorCode::InvalidUsage);
      }
      UniqueId token;
      const std::int32_t self = rank;
      if (sendAll(socket, &self, sizeof(self), deadline) == Transfer::Done &&
          recvAll(socket, token.data(), token.size(), deadline) == Transfer::Done) {
        return token;
      }
    } else if (errno != ECONNREFUSED && errno != EAGAIN && errno != ENOENT) {
      throw SysError("cannot reach rank 0 over a local socket", errno);
    }
    if (deadline.expired()) {
      throw Error("rank " + std::to_string(rank) + " did not find rank 0 on this host within " + deadline.passed() +
                      ": was it started?",
                  ErrorCode::Timeout);
    }
    std::this_thread::sleep_for(5ms);
  }
}

}  // namespace mscclpp::detail
