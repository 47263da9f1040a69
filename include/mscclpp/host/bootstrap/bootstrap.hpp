// How ranks find each other and exchange bytes before any channel exists: the interface, and its TCP implementation.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mscclpp/host/bootstrap/failure_detector.hpp"

namespace mscclpp {

namespace detail {
class ContextDepartures;
class Deadline;
}  // namespace detail

/// Rank discovery and small messages. Users may derive from it (over MPI, a key-value store, ...): the six pure
/// functions are all that the library needs. Every function is called by the host, may block, and throws on failure.
/// Messages between a pair of ranks match by tag, in the order of sending; different tags are independent.
///
/// A recv that throws Error(Timeout) has consumed nothing: if its message arrives later, the next recv of that peer and
/// tag receives it. So the caller must repeat the recv, or never use that tag again. A collective that has timed out
/// leaves the ranks out of sync: create a new bootstrap.
class Bootstrap {
 public:
  /// Maximum size in bytes of a vector that `send` and `recv` of vectors accept.
  static constexpr std::size_t MaxVectorBytes = std::size_t{1} << 30;

  /// Tags reserved by the library: for groupBarrier, for the steps of a group operation, and for writeTrace
  /// (host/trace/trace.hpp). They are the largest that every MPI implementation accepts, so that a bootstrap over MPI
  /// can pass them on.
  static constexpr int GroupBarrierTag = 32767;
  static constexpr int GroupAgreementTag = GroupBarrierTag - 1;
  static constexpr int TraceTag = GroupBarrierTag - 2;

  virtual ~Bootstrap() = default;

  virtual int getRank() const = 0;
  virtual int getNranks() const = 0;
  /// Number of ranks on the same host as this one, itself included.
  virtual int getNranksPerNode() const = 0;
  /// Number of ranks that can map each other's GPU memory. A domain may span hosts; by default it is the host.
  virtual int getNranksPerIpcDomain() const { return getNranksPerNode(); }

  /// How many bytes of messages a bootstrap must be able to buffer between two ranks, per direction.
  static constexpr std::size_t MinBufferedBytes = std::size_t{64} << 10;

  /// Sends `size` bytes to `peer`, which may be this rank. `tag` is chosen by the caller, from 0 to INT_MAX. Must
  /// return before the peer calls recv, as long as the messages that the peer has not received fit into
  /// MinBufferedBytes: the ranks of a barrier or of a group operation all send before they receive, and so do two ranks
  /// that connect. With a send that waits for its recv they would wait for each other. Larger messages may wait.
  virtual void send(void* data, int size, int peer, int tag) = 0;
  /// Receives the next message of (peer, tag), which must be `size` bytes long.
  virtual void recv(void* data, int size, int peer, int tag) = 0;
  /// `allData` holds getNranks() blocks of `size` bytes; the caller has filled in its own, all are filled in on return.
  virtual void allGather(void* allData, int size) = 0;
  /// Returns once every rank has called it.
  virtual void barrier() = 0;

  /// Ends the calls of this rank that are blocked now, from any thread: they throw Error(Aborted). TcpBootstrap's
  /// initialize is one of them. Returns whether there were any; the bootstrap is then no longer usable, since its
  /// messages may be out of sync, and calls of the other ranks throw an error that names this one. The default
  /// implementation does nothing: calls end at their own timeouts.
  virtual bool abortBlocked() noexcept { return false; }
  /// The same including calls that are about to block: the bootstrap is no longer usable whether or not there are any.
  virtual void abort() noexcept { abortBlocked(); }

  /// Returns once each of `ranks` has called it with the same set. The caller is one of them; their order does not
  /// matter. Its messages use GroupBarrierTag.
  void groupBarrier(const std::vector<int>& ranks);

  /// Sends a vector of any length up to MaxVectorBytes; the receiver need not know the length.
  void send(const std::vector<char>& data, int peer, int tag);
  /// Receives what `send(const std::vector<char>&, ...)` sent, and resizes `data`.
  void recv(std::vector<char>& data, int peer, int tag);
};

/// A rendezvous id that rank 0 creates and every rank needs: an address and a secret. It is opaque, and as confidential
/// as a password: any process that has it can join the job.
constexpr unsigned int UniqueIdBytes = 128;
using UniqueId = std::array<std::uint8_t, UniqueIdBytes>;

/// The bootstrap over TCP (IPv4 and IPv6). Connections are mutually authenticated with the job's secret; any other
/// client is disconnected without harm. A service thread detects a rank that fails or stops responding; then every
/// blocking call, here and on the other ranks, throws Error(RemoteError) which names that rank.
///
/// Messages are buffered at the receiver, so two ranks that send to each other do not block each other. A rank that
/// sends 2 GiB more than the receiver has consumed is treated as failed there.
///
/// Thread safety: calls of different threads may overlap if they differ in peer or tag; the collectives (initialize,
/// allGather, barrier, broadcast) must be called one at a time and in the same order on every rank.
class TcpBootstrap : public Bootstrap, public FailureDetector {
 public:
  /// Cheap: no socket is opened before createUniqueId or initialize. Throws Error(InvalidUsage) unless
  /// 0 <= rank < nRanks <= 65536.
  TcpBootstrap(int rank, int nRanks);
  /// Sends a goodbye to the peers, which do not treat it as a failure, and closes all connections.
  ~TcpBootstrap() override;
  TcpBootstrap(const TcpBootstrap&) = delete;
  TcpBootstrap& operator=(const TcpBootstrap&) = delete;

  /// Creates a rendezvous address on this host, with a fresh 128-bit secret. Called by the process of rank 0, which
  /// must then initialize with it; an id that is never used costs a listening socket until the process ends or 64 newer
  /// ones replace it.
  static UniqueId createUniqueId();
  /// The id that initialize was given; with "ip:port", one that represents that address and secret.
  UniqueId getUniqueId() const;

  /// Called once by every rank; returns when all ranks are connected. `timeoutSec` bounds the wait for the others, in
  /// seconds; negative: the timeout of other calls (setTimeout), by default MSCCLPP_BOOTSTRAP_TIMEOUT.
  /// Throws Error(Timeout), which names the missing ranks (rank 0) or the address (others), and Error(InvalidUsage) for
  /// bytes that are not a UniqueId, two processes with the same rank, or ranks that disagree on their number.
  void initialize(UniqueId uniqueId, std::int64_t timeoutSec = -1);
  /// The same with an address "ip:port", "[ip6]:port" or "ifname:ip:port" at which rank 0 listens; a host name in place
  /// of the ip is resolved. The secret is MSCCLPP_SECRET, the same text on every rank (at least 16 characters). Without
  /// it only loopback addresses are accepted, and both sides check that the other is a process of the same user
  /// (docs/environment.md describes the protection in each case).
  void initialize(const std::string& address, std::int64_t timeoutSec = -1);
  /// For the library: the same, before a deadline that bounds other calls too.
  void initializeUntil(const detail::Deadline& deadline, const UniqueId& uniqueId);
  void initializeUntil(const detail::Deadline& deadline, const std::string& address);
  /// For the library: the departures of ranks from the contexts of this bootstrap, and that of this rank.
  detail::ContextDepartures& contextDepartures() noexcept;
  void leaveContext(int context, const std::vector<int>& ranks) noexcept;
  /// For the library: one of the ranks whose message of this tag a recv would not wait for, once there is one.
  int waitForAny(const std::vector<int>& ranks, int tag);

  int getRank() const override;
  int getNranks() const override;
  int getNranksPerNode() const override;
  bool abortBlocked() noexcept override;
  void abort() noexcept override;

  /// The overloads for vectors are Bootstrap's: call them through a Bootstrap&.
  void send(void* data, int size, int peer, int tag) override;
  void recv(void* data, int size, int peer, int tag) override;
  void allGather(void* allData, int size) override;
  void barrier() override;
  /// Copies `size` bytes from rank `root` to every rank.
  void broadcast(void* data, int size, int root);

  /// Timeout of all later blocking calls, which then throw Error(Timeout): by default 30 s, or
  /// MSCCLPP_BOOTSTRAP_TIMEOUT.
  void setTimeout(std::chrono::milliseconds timeout);

  /// To be called before initialize, with the same value on every rank: a rank that is silent for this long is treated
  /// as failed. By default 5 s, or MSCCLPP_HEARTBEAT_TIMEOUT; 0 = only a closed connection is a failure, for debugging.
  void setHeartbeatTimeout(std::chrono::milliseconds timeout);

  /// The first rank that failed, as far as this rank has detected.
  std::optional<RankFailure> failure() const override;
  Subscription onFailure(FailureCallback callback) override;
  Subscription onLaterFailure(FailureCallback callback) override;
  Subscription onDeparture(DepartureCallback callback) override;
  void unsubscribe(Subscription subscription) noexcept override;

 private:
  class Session;
  std::unique_ptr<Session> session_;
};

}  // namespace mscclpp
