#include "rendezvous.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "handshake.hpp"
#include "mscclpp/host/error.hpp"
#include "socket.hpp"

namespace mscclpp::detail {

using namespace std::chrono_literals;

namespace {

constexpr const char* operation = "initialize";
// How often a rank that waits for a visitor looks whether the others are still there.
constexpr std::chrono::milliseconds glance = 50ms;
// Rank 0 knows best why a meeting failed: the others give it this much longer to say so.
constexpr std::chrono::milliseconds lastWords = 500ms;
constexpr std::size_t longestExcuse = 2048;

// What rank 0 sends to each rank that joined: the table of all, or why there will be none.
struct Announcement {
  enum class Kind : std::uint32_t { Table = 1, Refusal = 2 };
  Kind kind;
  std::int32_t errorCode;
  std::uint64_t size;
  Nonce meeting;
};

struct Place {
  SocketAddress address;
  std::uint64_t hostHash;
};
static_assert(std::has_unique_object_representations_v<Announcement> &&
              std::has_unique_object_representations_v<Place>);

std::string rankList(const std::vector<int>& ranks) {
  constexpr std::size_t most = 16;
  std::string text;
  for (std::size_t i = 0; i < ranks.size() && i < most; ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  return ranks.size() > most ? text + " and " + std::to_string(ranks.size() - most) + " more" : text;
}

// --- rank 0 ------------------------------------------------------------------------------------------------------

class Host {
 public:
  Host(const Attendance& self, const Rendezvous& rendezvous)
      : self_(self),
        door_(listener(rendezvous.address), keyFromSecret(rendezvous.secret), Purpose::Join, 0, self.numRanks),
        guests_(self.numRanks) {}

  void gather(const Mesh& mesh, Deadline deadline) {
    std::optional<Doorkeeper::Guest> guest;
    try {
      for (int missing = self_.numRanks - 1; missing > 0;) {
        guest = door_.next(deadline.orSooner(glance));
        mesh.check(operation);
        if (guest) {
          if (seat(*guest)) --missing;
        } else if (deadline.expired()) {
          throw Error("not all ranks arrived within " + deadline.passed() + ": missing " + rankList(absent()) + " of " +
                          std::to_string(self_.numRanks) + "; were they started, and with the same token or address?",
                      ErrorCode::Timeout);
        }
        noticeDepartures();
      }
    } catch (const Error& error) {
      if (guest && guest->socket) refuse(guest->socket, error);
      for (auto& seated : guests_) {
        if (seated) refuse(seated->socket, error);
      }
      throw;
    }
  }

  std::vector<std::uint64_t> introduceAll(Mesh& mesh, Deadline deadline) {
    std::vector<Place> places(self_.numRanks);
    places[0].hostHash = self_.hostHash;
    for (int rank = 1; rank < self_.numRanks; ++rank) {
      places[rank] = {guests_[rank]->introduction.listenAddress, guests_[rank]->introduction.hostHash};
    }
    const Announcement head{Announcement::Kind::Table, 0, places.size() * sizeof(Place), makeNonce()};
    int unreachable = 0;
    for (int rank = 1; rank < self_.numRanks; ++rank) {
      const UniqueFd& socket = guests_[rank]->socket;
      const bool told = sendAll(socket, &head, sizeof(head), deadline) == Transfer::Done &&
                        sendAll(socket, places.data(), head.size, deadline) == Transfer::Done;
      if (!told && unreachable == 0) unreachable = rank;
    }
    // Even if one is lost: over the mesh the others can be told which.
    for (int rank = 1; rank < self_.numRanks; ++rank) mesh.addPeer(rank, std::move(guests_[rank]->socket));
    if (unreachable != 0) {
      throw Error("rank " + std::to_string(unreachable) + " ended while the ranks were meeting",
                  ErrorCode::RemoteError);
    }
    std::vector<std::uint64_t> hashes;
    for (const Place& place : places) hashes.push_back(place.hostHash);
    return hashes;
  }

 private:
  static UniqueFd listener(const SocketAddress& address) {
    UniqueFd reserved = takeReservedPort(address);
    return reserved ? std::move(reserved) : bindTo(address);
  }

  // Whether the guest takes a place that was free.
  bool seat(Doorkeeper::Guest& guest) {
    const Introduction& who = guest.introduction;
    if (who.numRanks != self_.numRanks) {
      throw Error("rank " + std::to_string(who.rank) + " was started for a job of " + std::to_string(who.numRanks) +
                      " ranks, rank 0 for one of " + std::to_string(self_.numRanks),
                  ErrorCode::InvalidUsage);
    }
    if (who.rank <= 0 || who.rank >= self_.numRanks) {
      throw Error("somebody joined as rank " + std::to_string(who.rank) + ", but the ranks besides 0 are 1 to " +
                      std::to_string(self_.numRanks - 1),
                  ErrorCode::InvalidUsage);
    }
    auto& place = guests_[who.rank];
    const bool wasFree = !place;
    // A rank whose first attempt broke off may come again; two living ones of one number are a mistake.
    if (place && !isClosed(place->socket)) {
      throw Error("rank " + std::to_string(who.rank) + " joined twice, from " +
                      remoteAddressOf(place->socket).toString() + " and " + remoteAddressOf(guest.socket).toString() +
                      ": give each process a rank of its own",
                  ErrorCode::InvalidUsage);
    }
    place = std::move(guest);
    return wasFree;
  }

  void noticeDepartures() const {
    for (const auto& guest : guests_) {
      if (guest && isClosed(guest->socket)) {
        throw Error("rank " + std::to_string(guest->introduction.rank) + " ended or gave up while others were awaited",
                    ErrorCode::RemoteError);
      }
    }
  }

  std::vector<int> absent() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < self_.numRanks; ++rank) {
      if (!guests_[rank]) ranks.push_back(rank);
    }
    return ranks;
  }

  static void refuse(const UniqueFd& socket, const Error& error) {
    const std::string_view excuse = std::string_view(error.what()).substr(0, longestExcuse);
    const ErrorCode code = error.getErrorCode() == ErrorCode::Aborted ? ErrorCode::RemoteError : error.getErrorCode();
    const Announcement head{Announcement::Kind::Refusal, static_cast<std::int32_t>(code), excuse.size(), {}};
    const Deadline soon = Deadline::after(100ms);
    if (sendAll(socket, &head, sizeof(head), soon) == Transfer::Done)
      sendAll(socket, excuse.data(), excuse.size(), soon);
  }

  const Attendance& self_;
  Doorkeeper door_;
  std::vector<std::optional<Doorkeeper::Guest>> guests_;
};

// --- the other ranks ---------------------------------------------------------------------------------------------

struct Table {
  Nonce meeting;
  std::vector<Place> places;
};

Table receiveTable(const Attendance& self, const UniqueFd& socket, const SocketAddress& address, Deadline deadline) {
  const auto receive = [&](void* data, std::size_t size) {
    switch (recvAll(socket, data, size, deadline)) {
      case Transfer::Done:
        return;
      case Transfer::Closed:
        throw Error("rank 0 at " + address.toString() + " ended before all ranks had met", ErrorCode::RemoteError);
      case Transfer::TimedOut:
        throw Error("rank " + std::to_string(self.rank) + " reached rank 0 at " + address.toString() +
                        ", but not all ranks arrived within " + deadline.passed() + "; were all of them started?",
                    ErrorCode::Timeout);
    }
  };
  Announcement head;
  receive(&head, sizeof(head));
  if (head.kind == Announcement::Kind::Refusal && head.size <= longestExcuse) {
    std::string excuse(head.size, '\0');
    receive(excuse.data(), excuse.size());
    throw Error("rank 0 ended the meeting: " + excuse, static_cast<ErrorCode>(head.errorCode));
  }
  Table table{head.meeting, std::vector<Place>(self.numRanks)};
  if (head.kind != Announcement::Kind::Table || head.size != table.places.size() * sizeof(Place)) {
    throw Error("rank 0 at " + address.toString() + " sent a table that cannot be read", ErrorCode::RemoteError);
  }
  receive(table.places.data(), head.size);
  return table;
}

std::vector<std::uint64_t> attend(const Attendance& self, const Rendezvous& rendezvous, Mesh& mesh, Deadline deadline) {
  dropInheritedPort(rendezvous.address);
  const SocketAddress local = self.interfaces.empty() ? localAddressTowards(rendezvous.address)
                                                      : chooseLocalAddress(self.interfaces, self.family);
  UniqueFd listener = bindTo(local);
  startListening(listener);
  const Key key = keyFromSecret(rendezvous.secret);
  Introduction introduction{Purpose::Join, self.rank, self.numRanks, 0, self.hostHash, localAddressOf(listener)};
  const auto checkpoint = [&] { mesh.check(operation); };
  UniqueFd host = connectAndIntroduce(rendezvous.address, key, introduction, deadline, checkpoint);
  const Table table = receiveTable(self, host, rendezvous.address, deadline.later(lastWords));

  // From here on rank 0 watches everybody, and its news reach this rank over the mesh.
  mesh.addPeer(0, std::move(host));
  const Key meetingKey = keyForMeeting(key, table.meeting);
  introduction.purpose = Purpose::Mesh;
  for (int peer = 1; peer < self.rank; ++peer) {
    SocketAddress address = table.places[peer].address;
    if (address.isLinkLocal()) address.scope = local.scope;  // interface numbers are each host's own
    introduction.peer = peer;
    mesh.addPeer(peer, connectAndIntroduce(address, meetingKey, introduction, deadline, checkpoint));
  }
  Doorkeeper door(std::move(listener), meetingKey, Purpose::Mesh, self.rank, self.numRanks);
  std::vector<bool> arrived(self.numRanks, false);
  for (int missing = self.numRanks - 1 - self.rank; missing > 0;) {
    auto guest = door.next(deadline.orSooner(glance));
    mesh.check(operation);
    if (guest) {
      const int peer = guest->introduction.rank;
      if (peer <= self.rank || peer >= self.numRanks || arrived[peer]) continue;
      arrived[peer] = true;
      --missing;
      mesh.addPeer(peer, std::move(guest->socket));
    } else if (deadline.expired()) {
      std::vector<int> ranks;
      for (int peer = self.rank + 1; peer < self.numRanks; ++peer) {
        if (!arrived[peer]) ranks.push_back(peer);
      }
      throw Error("rank " + std::to_string(self.rank) + " waited for " + deadline.passed() +
                      " in vain for a connection from rank " + rankList(ranks) + " at " +
                      localAddressTowards(rendezvous.address).toString() + ": can those hosts connect to this one?",
                  ErrorCode::Timeout);
    }
  }
  std::vector<std::uint64_t> hashes;
  for (const Place& place : table.places) hashes.push_back(place.hostHash);
  return hashes;
}

}  // namespace

std::vector<std::uint64_t> meet(const Attendance& self, const Rendezvous& rendezvous, Mesh& mesh, Deadline deadline) {
  if (self.rank != 0) return attend(self, rendezvous, mesh, deadline);
  if (self.numRanks == 1) {
    takeReservedPort(rendezvous.address);
    return {self.hostHash};
  }
  Host host(self, rendezvous);
  host.gather(mesh, deadline);
  return host.introduceAll(mesh, deadline.later(lastWords));
}

}  // namespace mscclpp::detail
