// Hands file descriptors to other processes of the same user: how memory that is a descriptor gets mapped by a peer.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "deadline.hpp"
#include "process_identity.hpp"
#include "unique_fd.hpp"

namespace mscclpp::detail {

/// A thread behind a Unix socket in the abstract namespace, whose name is 128 random bits: nothing on disk, nothing to
/// guess, nothing left behind. It answers only processes of its own user, which name a descriptor by a random token;
/// whatever else arrives is dropped, and a connection that stays silent is closed.
class FdServer : public std::enable_shared_from_this<FdServer> {
 public:
  /// What the owner of a descriptor sends to its peers so that they can fetch it.
  struct Key {
    Id128 server;
    Id128 token;
  };

  /// A descriptor that can be fetched for as long as this exists. Keeps the server running.
  class Offer {
   public:
    Offer(std::shared_ptr<FdServer> server, const Id128& token) : server_(std::move(server)), token_(token) {}
    ~Offer() { server_->withdraw(token_); }
    Offer(const Offer&) = delete;
    Offer& operator=(const Offer&) = delete;

    Key key() const { return {server_->name_, token_}; }

   private:
    std::shared_ptr<FdServer> server_;
    Id128 token_;
  };

  static std::shared_ptr<FdServer> create();
  /// Stops and joins the thread.
  ~FdServer();
  FdServer(const FdServer&) = delete;
  FdServer& operator=(const FdServer&) = delete;

  /// Offers `fd`, which stays open for as long as `owner` lives.
  std::shared_ptr<Offer> offer(int fd, std::shared_ptr<const void> owner);

  /// Fetches a descriptor that a server of this host offers. Throws Error(RemoteError) when there is no such server
  /// or offer any more, or the server belongs to another user; Error(Timeout) when it does not answer by `deadline`.
  static UniqueFd fetch(const Key& key, Deadline deadline);

 private:
  struct Offered {
    int fd;
    std::shared_ptr<const void> owner;
  };
  class Client;

  FdServer();
  void withdraw(const Id128& token) noexcept;
  void serve() noexcept;
  bool answer(Client& client);

  Id128 name_;
  UniqueFd listener_;
  UniqueFd wake_;
  std::mutex mutex_;
  std::map<Id128, Offered> offered_;
  std::thread thread_;
  int ownerPid_;
};

}  // namespace mscclpp::detail
