// The receiving end of a TCP connection: applies a peer's operations to registered memory, and answers.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "../../deadline.hpp"
#include "../../staged_copies.hpp"
#include "../../unique_fd.hpp"
#include "registry.hpp"
#include "wire.hpp"

namespace mscclpp::detail::tcp {

/// Used by the network's thread alone. Never waits for the peer. An operation that names memory which is not on offer,
/// or leaves it, is refused before a byte of it is taken, and ends the connection: the peer is told why.
class Inbound {
 public:
  /// `copies` may be null: they are made when the first operation on GPU memory arrives.
  Inbound(UniqueFd socket, const Registry& registry, std::unique_ptr<StagedCopies> copies);
  ~Inbound();
  Inbound(const Inbound&) = delete;
  Inbound& operator=(const Inbound&) = delete;

  /// Applies what has arrived, some megabytes at most, and sends answers. Returns false when the connection is over.
  bool serve() noexcept;

  /// What to wait for: EPOLLIN, EPOLLOUT.
  std::uint32_t interest() const noexcept;
  /// Milliseconds after which to serve again although nothing has come; -1: not needed.
  int impatience() const noexcept;
  const UniqueFd& socket() const noexcept { return socket_; }

 private:
  enum class Progress { More, Drained, Closed };

  Progress receive();
  Progress discard();
  void digest();
  void begin(const Message& message);
  void deliver(const char* bytes, std::size_t count);
  void delivered(std::size_t count);
  void update(const Message& message);
  void useCopies(int gpu);
  void keep(Registration::Lease lease);
  void settle();
  void answer(std::uint64_t completed);
  bool sendAnswer();
  void refuse(Outcome outcome);
  void fail(Outcome outcome) noexcept;

  UniqueFd socket_;
  const Registry& registry_;
  std::unique_ptr<StagedCopies> copies_;
  // Of the memory that copies since the last mark touch.
  std::shared_ptr<Registration> leased_;
  std::vector<Registration::Lease> leases_;
  /// What copies under way have been marked for.
  struct Marked {
    std::vector<Registration::Lease> leases;
    bool queried;
    std::uint64_t applied;
  };
  std::optional<Marked> marked_;

  // The operation whose bytes are arriving; left_ is zero between operations.
  Id128 name_{};
  std::shared_ptr<Registration> memory_;
  char* target_ = nullptr;
  std::size_t left_ = 0;
  std::uint64_t applied_ = 0;

  // What has arrived and is not applied: messages, and the payload of small ones.
  std::array<char, 16384> inbox_;
  std::size_t inboxBegin_ = 0;
  std::size_t inboxEnd_ = 0;

  bool queried_ = false;
  std::uint64_t answered_ = 0;  // what the peer has been told to be complete
  Answer answer_{};
  std::size_t answerLeft_ = 0;  // bytes of it to be sent
  std::optional<Deadline> failed_;
};

}  // namespace mscclpp::detail::tcp
