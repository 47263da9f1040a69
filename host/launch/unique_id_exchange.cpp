#include "host/launch/unique_id_exchange.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "host/base/descriptor_error.hpp"
#include "host/base/process_identity.hpp"
#include "host/base/unique_fd.hpp"
#include "host/bootstrap/rank_list.hpp"
#include "host/net/accept_queue.hpp"
#include "host/net/authentication.hpp"
#include "host/net/local_socket.hpp"
#include "host/net/retry.hpp"
#include "host/net/socket.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

using namespace std::chrono_literals;

namespace {

// A rank sends and receives as soon as it has connected. A client that takes longer is disconnected, and may retry.
constexpr std::chrono::milliseconds exchangeTimeout = 1s;
constexpr std::size_t maxOpenClients = 256;

// Sockets of this user that listen for the job.
std::vector<std::string> findOtherServers(const std::string& prefix, const std::string& ownName) {
  std::vector<std::string> names;
  for (const std::string& name : findListeners(prefix)) {
    int errorNumber = 0;
    if (name == ownName) continue;
    const UniqueFd socket = connectLocal(name, Deadline::after(0ms), errorNumber);
    if (socket && isSameUser(socket)) names.push_back(name);
  }
  return names;
}

class UniqueIdServer {
 public:
  UniqueIdServer(const std::vector<std::string>& jobs, const UniqueId& uniqueId, int numRanks)
      : uniqueId_(uniqueId), served_(numRanks, false) {
    for (const std::string& job : jobs) {
      const std::string prefix = rendezvousPrefix(job);
      const std::string name = prefix + hexText(randomId());
      queues_.emplace_back(listenLocal(name), "ranks of this host");
      if (!findOtherServers(prefix, name).empty()) {
        throw Error(
            "this job has a rank 0 on this host already: were two processes started as rank 0? If these are two jobs, "
            "give each a MASTER_PORT of its own",
            ErrorCode::InvalidUsage);
      }
    }
  }

  void serve(Deadline deadline) {
    while (!missingRanks().empty()) {
      // Checked each time: clients that are not ranks of the job may keep connecting.
      if (deadline.expired()) {
        throw Error("not all ranks arrived within " + deadline.elapsedText() + ": " +
                        missingRanksText(missingRanks(), served_.size()),
                    ErrorCode::Timeout);
      }
      wait(deadline);
      for (AcceptQueue& queue : queues_) acceptClients(queue);
      for (auto client = clients_.begin(); client != clients_.end();) {
        client = serveClient(*client) ? std::next(client) : clients_.erase(client);
      }
    }
  }

 private:
  struct Client {
    UniqueFd socket;
    Deadline deadline;
    std::int32_t rank = 0;
    std::size_t received = 0;
  };

  // Until a client connects or sends, or the first of them times out.
  void wait(Deadline deadline) {
    std::vector<pollfd> entries;
    int timeout = deadline.pollTimeout();
    for (const AcceptQueue& queue : queues_) {
      entries.push_back(queue.pollEntry());
      timeout = queue.pollTimeout(timeout);
    }
    for (const Client& client : clients_) {
      entries.push_back({client.socket.get(), POLLIN, 0});
      timeout = std::min(timeout, client.deadline.pollTimeout());
    }
    if (::poll(entries.data(), entries.size(), timeout) < 0 && errno != EINTR) throw SysError("poll", errno);
  }

  void acceptClients(AcceptQueue& queue) {
    // Bounded, so that clients are served however many connect.
    for (std::size_t i = 0; i < maxOpenClients; ++i) {
      UniqueFd socket = queue.accept();
      // Connected clients will free descriptors. If there are none, this process itself has too few.
      if (queue.shortage() == EMFILE && clients_.empty())
        throw SysError("rank 0 cannot accept connections of the other ranks", EMFILE);
      if (!socket) return;
      if (!isSameUser(socket)) continue;
      if (clients_.size() == maxOpenClients) clients_.pop_front();
      clients_.push_back({std::move(socket), Deadline::after(exchangeTimeout)});
    }
  }

  // Returns whether to keep waiting for the client.
  bool serveClient(Client& client) {
    char* bytes = reinterpret_cast<char*>(&client.rank);
    const ssize_t count =
        ::recv(client.socket.get(), bytes + client.received, sizeof(client.rank) - client.received, 0);
    if (count < 0) return (errno == EAGAIN || errno == EINTR) && !client.deadline.expired();
    client.received += static_cast<std::size_t>(count);
    if (count != 0 && client.received < sizeof(client.rank)) return !client.deadline.expired();
    const auto numRanks = static_cast<std::int32_t>(served_.size());
    if (client.received < sizeof(client.rank) || client.rank <= 0 || client.rank >= numRanks) return false;
    // The send buffer of a new connection has space for a few bytes.
    if (sendAll(client.socket, uniqueId_.data(), uniqueId_.size(), Deadline::after(0ms)) == TransferStatus::Done) {
      served_[static_cast<std::size_t>(client.rank)] = true;
    }
    return false;
  }

  std::vector<int> missingRanks() const {
    std::vector<int> ranks;
    for (std::size_t rank = 1; rank < served_.size(); ++rank) {
      if (!served_[rank]) ranks.push_back(static_cast<int>(rank));
    }
    return ranks;
  }

  const UniqueId& uniqueId_;
  std::vector<bool> served_;
  std::vector<AcceptQueue> queues_;
  std::list<Client> clients_;
};

std::optional<UniqueId> tryFetch(const std::string& name, int rank, Deadline deadline) {
  int errorNumber = 0;
  const UniqueFd socket = connectLocal(name, Deadline::after(0ms), errorNumber);
  if (!socket && isOutOfDescriptors(errorNumber)) throw SysError("cannot connect to rank 0", errorNumber);
  if (!socket || !isSameUser(socket)) return std::nullopt;
  UniqueId uniqueId;
  const auto ownRank = static_cast<std::int32_t>(rank);
  if (sendAll(socket, &ownRank, sizeof(ownRank), deadline) == TransferStatus::Done &&
      recvAll(socket, uniqueId.data(), uniqueId.size(), deadline) == TransferStatus::Done) {
    return uniqueId;
  }
  return std::nullopt;
}

}  // namespace

std::string rendezvousPrefix(const std::string& job) {
  return "mscclpp-" + std::to_string(::geteuid()) + '-' + hexText(secretFromText("mscclpp job " + job)) + '-';
}

void serveUniqueId(const std::vector<std::string>& jobs, const UniqueId& uniqueId, int numRanks, Deadline deadline) {
  if (numRanks == 1) return;
  UniqueIdServer(jobs, uniqueId, numRanks).serve(deadline);
}

UniqueId fetchUniqueId(const std::vector<std::string>& jobs, int rank, Deadline deadline) {
  const auto uniqueId = retryUntil(deadline, 20ms, [&]() -> std::optional<UniqueId> {
    for (const std::string& job : jobs) {
      for (const std::string& name : findListeners(rendezvousPrefix(job))) {
        if (const auto found = tryFetch(name, rank, deadline.limitedTo(exchangeTimeout))) return found;
      }
    }
    return std::nullopt;
  });
  if (uniqueId) return *uniqueId;
  throw Error(
      "rank " + std::to_string(rank) + " did not find rank 0 on this host within " + deadline.elapsedText() +
          ": was it started, by the same user? If both were started, but not by one process, set MASTER_ADDR and "
          "MASTER_PORT on every rank",
      ErrorCode::Timeout);
}

}  // namespace mscclpp::detail
