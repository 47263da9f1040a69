// Passes file descriptors to other processes of the same user, so that a peer can map the memory behind them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "host/base/deadline.hpp"
#include "host/base/process_identity.hpp"
#include "host/base/unique_fd.hpp"
#include "host/net/accept_queue.hpp"

namespace mscclpp::detail {

/// A thread behind a Unix socket in the abstract namespace, whose name is 128 random bits: it cannot be guessed, and
/// leaves no file. It serves only processes of its own user, which identify a descriptor by a random token. Clients are
/// served concurrently: a silent one is disconnected after some seconds, or earlier when there are too many. A process
/// that has no descriptors left still serves, one client at a time.
class FdServer : public std::enable_shared_from_this<FdServer> {
 public:
  /// Sent by the owner of a descriptor to its peers, so that they can fetch it.
  struct Key {
    Id128 server;
    Id128 token;
  };

  /// A descriptor that can be fetched as long as this exists. Keeps the server running.
  class Registration {
   public:
    Registration(std::shared_ptr<FdServer> server, const Id128& token) : server_(std::move(server)), token_(token) {}
    ~Registration() { server_->deregister(token_); }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

    Key key() const { return {server_->name_, token_}; }

   private:
    std::shared_ptr<FdServer> server_;
    Id128 token_;
  };

  static std::shared_ptr<FdServer> create();
  /// The one of this process, which runs while there are registrations: however many communicators there are, they take
  /// one thread and its descriptors. A forked child gets one of its own, and a process whose server has ended because
  /// of an error gets another one.
  static std::shared_ptr<FdServer> ofProcess();
  /// Stops and joins the thread. In a forked child it only closes the child's descriptors.
  ~FdServer();
  FdServer(const FdServer&) = delete;
  FdServer& operator=(const FdServer&) = delete;

  /// Registers `fd`, which stays open as long as `owner` lives. Throws Error(SystemError) if the thread has ended
  /// because of an error, for example for lack of memory.
  std::shared_ptr<Registration> registerFd(int fd, std::shared_ptr<const void> owner);

  /// Fetches a descriptor that is registered with a server of this host. Throws Error(RemoteError) if the server or the
  /// registration no longer exists, or the server belongs to another user; Error(Timeout) if it does not respond by
  /// `deadline`; SysError if this process has no free descriptor to receive it.
  static UniqueFd fetch(const Key& key, Deadline deadline);

 private:
  struct Entry {
    int fd;
    std::shared_ptr<const void> owner;
  };
  /// A connection on which the token has not arrived completely.
  struct Client {
    UniqueFd socket;
    Deadline deadline;
    Id128 token{};
    std::size_t received = 0;
  };

  FdServer();
  /// Whether it passes descriptors: it is of this process, and its thread has not ended.
  bool isRunning();
  void deregister(const Id128& token) noexcept;
  void serve();
  void fail(std::exception_ptr failure) noexcept;
  void acceptClients();
  bool handleClient(Client& client);
  void disconnect(Client& client) noexcept;

  const OwnerProcess owner_;
  Id128 name_;
  AcceptQueue queue_;
  UniqueFd wake_;
  std::mutex mutex_;
  std::map<Id128, Entry> entries_;
  std::exception_ptr failure_;  // why the thread has ended

  // Used by the thread only.
  std::deque<Client> clients_;

  std::thread thread_;
};

}  // namespace mscclpp::detail
