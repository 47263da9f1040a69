// The sending end of a TCP connection: a ConnectionBase whose operations are messages.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../../connection_base.hpp"
#include "../../deadline.hpp"
#include "../../staged_copies.hpp"
#include "../../unique_fd.hpp"
#include "mscclpp/host/error.hpp"
#include "wire.hpp"

namespace mscclpp::detail::tcp {

/// Everything happens in the thread that calls: it sends, and reads answers when it wants to know. An operation returns
/// when its bytes are with the system or, small and in a batch, copied; so its source is free from then on. A connection
/// that failed stays so, and says why.
class Outbound : public ConnectionBase {
 public:
  /// `socket` leads to the peer's Inbound, of its network `target`. A call that the peer keeps from moving on gives up after `patience`.
  Outbound(std::shared_ptr<Context> context, const Endpoint& local, const Endpoint& remote, UniqueFd socket,
           const Id128& target, std::chrono::milliseconds patience);
  /// Gives what is under way a moment to arrive.
  ~Outbound() override;

  std::uint64_t completed() override;
  void beginBatch() override { isBatch_ = true; }
  void endBatch() override;

 protected:
  void startWrite(const RegisteredMemory& dst, std::uint64_t dstOffset, const RegisteredMemory& src,
                  std::uint64_t srcOffset, std::uint64_t size) override;
  void startUpdate(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t oldValue,
                   std::uint64_t newValue) override;
  void awaitProgress(std::chrono::microseconds waited, std::chrono::microseconds left) override;
  std::string path() const override;

 private:
  Message messageFor(Operation operation, const MemoryHandle& memory, std::uint64_t offset) const;
  void hold(std::string_view bytes);
  void sendHeld();
  void send(std::string_view message, std::string_view payload);
  std::size_t sendSome(iovec* pieces, std::size_t count);
  void readAnswers();
  bool waitFor(short events, std::chrono::microseconds atMost) const;
  [[noreturn]] void fail(const std::string& what, ErrorCode code);
  void refuseIfFailed() const;

  UniqueFd socket_;
  Id128 target_;
  std::string peer_;
  std::chrono::milliseconds patience_;
  std::unique_ptr<StagedCopies> copies_;  // for sources in GPU memory

  std::uint64_t completed_ = 0;
  std::uint64_t queried_ = 0;  // the number of the last question
  bool isBatch_ = false;
  std::vector<char> held_;  // to be sent before anything else
  Answer answer_{};
  std::size_t answerReceived_ = 0;
  std::exception_ptr failure_;
};

}  // namespace mscclpp::detail::tcp
