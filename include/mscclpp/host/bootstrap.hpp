// How ranks find each other and exchange bytes before any channel exists: the interface, and its form over TCP.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mscclpp/host/liveness.hpp"

namespace mscclpp {

/// Rank discovery and small messages. Users may derive from it (over MPI, a store of their own, ...): the six pure
/// functions are all that the library needs. Every function is called by the host, may block, and throws on failure.
/// Messages between a pair of ranks match by tag, first sent first received; tags are independent of each other.
///
/// A recv that throws Error(Timeout) has taken nothing: should its message still come, the next recv of that peer and tag
/// gets it. So whoever goes on repeats the recv, or never uses that tag again. A collective that has timed out leaves the
/// ranks out of step: make a new bootstrap.
class Bootstrap {
 public:
  /// The longest vector that `recv(std::vector<char>&, ...)` accepts, in bytes; a longer one is an error, not memory.
  static constexpr std::size_t MaxVectorBytes = std::size_t{1} << 30;

  /// Tags that the library keeps for itself, not to be used for others: of groupBarrier, of the steps that a group agrees
  /// upon, and of writeTrace (host/trace.hpp). They are the largest that every MPI accepts, so that a bootstrap over MPI
  /// can pass them on.
  static constexpr int GroupBarrierTag = 32767;
  static constexpr int GroupAgreementTag = GroupBarrierTag - 1;
  static constexpr int TraceTag = GroupBarrierTag - 2;

  virtual ~Bootstrap() = default;

  virtual int getRank() const = 0;
  virtual int getNranks() const = 0;
  /// Ranks on the same host as this one, itself included.
  virtual int getNranksPerNode() const = 0;
  /// Ranks that can map each other's GPU memory. A domain may span hosts; by default it is the host.
  virtual int getNranksPerIpcDomain() const { return getNranksPerNode(); }

  /// Sends `size` bytes to `peer`, which may be this rank. `tag` is the caller's, from 0 to INT_MAX.
  virtual void send(void* data, int size, int peer, int tag) = 0;
  /// Receives the next message of (peer, tag), which must be `size` bytes long.
  virtual void recv(void* data, int size, int peer, int tag) = 0;
  /// `allData` holds getNranks() slots of `size` bytes; the caller has filled its own, all are filled on return.
  virtual void allGather(void* allData, int size) = 0;
  /// Returns once every rank has called it.
  virtual void barrier() = 0;

  /// Ends the calls of this rank that are blocked now, from any thread: they throw Error(Aborted). TcpBootstrap's
  /// initialize is one of them. Returns whether there were any; the bootstrap is then of no more use, since its messages
  /// may be out of step, and calls of the other ranks throw an error that names this one. Where it is not overridden
  /// nothing happens: calls end at their own timeouts.
  virtual bool abortBlocked() noexcept { return false; }

  /// Returns once each of `ranks` has called it with the same set. The caller is one of them; order does not matter.
  /// Its messages use GroupBarrierTag.
  void groupBarrier(const std::vector<int>& ranks);

  /// Sends a vector of any length up to MaxVectorBytes; the receiver need not know the length.
  void send(const std::vector<char>& data, int peer, int tag);
  /// Receives what `send(const std::vector<char>&, ...)` sent, and resizes `data`.
  void recv(std::vector<char>& data, int peer, int tag);
};

/// A rendezvous token that rank 0 makes and every rank needs: an address and a secret. It is opaque, and as
/// confidential as a password: who has it can join the job.
constexpr unsigned int UniqueIdBytes = 128;
using UniqueId = std::array<std::uint8_t, UniqueIdBytes>;

/// The bootstrap over TCP (IPv4 and IPv6). Connections are authenticated both ways with the job's secret; anything
/// else that connects is dropped without harm. A watcher thread notices a rank that dies or stops answering; then
/// every blocking call, here and on the other ranks, throws Error(RemoteError) which names that rank.
///
/// Messages wait at their receiver, so that two ranks which send to each other do not block each other. A rank that sends
/// 2 GiB more than the receiver has taken counts as failed there.
///
/// Thread safety: calls of different threads may overlap as long as they differ in peer or tag; the collectives
/// (initialize, allGather, barrier, broadcast) are one at a time and in the same order on every rank.
class TcpBootstrap : public Bootstrap, public Liveness {
 public:
  /// Cheap: no socket is opened before createUniqueId or initialize. Throws Error(InvalidUsage) unless
  /// 0 <= rank < nRanks.
  TcpBootstrap(int rank, int nRanks);
  /// Says goodbye to the peers, which do not take it as a failure, and closes everything.
  ~TcpBootstrap() override;
  TcpBootstrap(const TcpBootstrap&) = delete;
  TcpBootstrap& operator=(const TcpBootstrap&) = delete;

  /// Makes a rendezvous address on this host, with a fresh 128-bit secret. Called by the process of rank 0, which must
  /// then initialize with it; a token that is never used costs a listening socket until the process ends or 64 newer
  /// ones push it out.
  static UniqueId createUniqueId();
  /// The token that initialize was given; with "ip:port", one that stands for that address and secret.
  UniqueId getUniqueId() const;

  /// Called once by every rank; returns when all have met. `timeoutSec` bounds the wait for the others.
  /// Throws Error(Timeout) which names the ranks that are missing (rank 0) or the address (others), and
  /// Error(InvalidUsage) for a token that is no token, a rank taken twice, or ranks that disagree on their number.
  void initialize(const UniqueId& uniqueId, std::int64_t timeoutSec = 30);
  /// The same with an address "ip:port", "[ip6]:port" or "ifname:ip:port" at which rank 0 listens; a host name in the
  /// place of the ip is looked up. The secret is MSCCLPP_SECRET, the same text on every rank (16 characters at least).
  /// Without it only loopback addresses are accepted, under a secret derived from the user id and the address: it keeps
  /// jobs apart, not attackers out.
  void initialize(const std::string& address, std::int64_t timeoutSec = 30);

  int getRank() const override;
  int getNranks() const override;
  int getNranksPerNode() const override;
  bool abortBlocked() noexcept override;

  using Bootstrap::recv;
  using Bootstrap::send;
  void send(void* data, int size, int peer, int tag) override;
  void recv(void* data, int size, int peer, int tag) override;
  void allGather(void* allData, int size) override;
  void barrier() override;
  /// Copies `size` bytes from rank `root` to every rank.
  void broadcast(void* data, int size, int root);

  /// How long any later blocking call waits before it throws Error(Timeout): 30 s, or MSCCLPP_BOOTSTRAP_TIMEOUT.
  void setTimeout(std::chrono::milliseconds timeout);

  /// Before initialize: after how much silence a rank counts as lost; the same on every rank. 5 s, or
  /// MSCCLPP_HEARTBEAT_TIMEOUT; 0 = only a closed connection counts, for work under a debugger.
  void setHeartbeatTimeout(std::chrono::milliseconds timeout);

  /// The first rank that was noticed to be lost.
  std::optional<RankFailure> failure() const override;
  Subscription onFailure(FailureCallback callback) override;
  void unsubscribe(Subscription subscription) noexcept override;

 private:
  class Session;
  std::unique_ptr<Session> session_;
};

}  // namespace mscclpp
