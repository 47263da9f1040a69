// A custom bootstrap for tests: ranks that are threads of one process. It buffers no more than a bootstrap must: a send
// beyond that waits for the receiver.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp::test {

/// What all ranks share.
struct Mailboxes {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::tuple<int, int, int>, std::deque<std::vector<char>>> messages;  // by sender, receiver and tag
  std::map<std::pair<int, int>, std::size_t> bufferedBytes;                     // by sender and receiver
};

class MailboxBootstrap : public Bootstrap {
 public:
  MailboxBootstrap(int rank, int nRanks, std::shared_ptr<Mailboxes> mailboxes)
      : rank_(rank), nRanks_(nRanks), mailboxes_(std::move(mailboxes)) {}

  int getRank() const override { return rank_; }
  int getNranks() const override { return nRanks_; }
  int getNranksPerNode() const override { return nRanks_; }

  using Bootstrap::recv;
  using Bootstrap::send;

  void send(void* data, int size, int peer, int tag) override {
    const auto* bytes = static_cast<const char*>(data);
    std::unique_lock lock(mailboxes_->mutex);
    std::size_t& buffered = mailboxes_->bufferedBytes[{rank_, peer}];
    buffered += static_cast<std::size_t>(size);
    mailboxes_->messages[{rank_, peer, tag}].emplace_back(bytes, bytes + size);
    mailboxes_->changed.notify_all();
    waitUntil(lock, "send", [&] { return buffered <= MinBufferedBytes; });
  }
  void recv(void* data, int size, int peer, int tag) override {
    std::unique_lock lock(mailboxes_->mutex);
    auto& queue = mailboxes_->messages[{peer, rank_, tag}];
    waitUntil(lock, "recv", [&] { return !queue.empty(); });
    if (queue.front().size() != static_cast<std::size_t>(size))
      throw Error("recv: the message has another size", ErrorCode::InvalidUsage);
    if (size > 0) std::memcpy(data, queue.front().data(), queue.front().size());
    mailboxes_->bufferedBytes[{peer, rank_}] -= queue.front().size();
    queue.pop_front();
    mailboxes_->changed.notify_all();
  }
  void allGather(void* allData, int size) override {
    char* blocks = static_cast<char*>(allData);
    for (int peer = 0; peer < nRanks_; ++peer) {
      if (peer != rank_) send(blocks + rank_ * size, size, peer, collectiveTag);
    }
    for (int peer = 0; peer < nRanks_; ++peer) {
      if (peer != rank_) recv(blocks + peer * size, size, peer, collectiveTag);
    }
  }
  void barrier() override {
    std::vector<char> tokens(static_cast<std::size_t>(nRanks_));
    allGather(tokens.data(), 1);
  }

 private:
  static constexpr int collectiveTag = -1;

  template <class Ready>
  void waitUntil(std::unique_lock<std::mutex>& lock, const char* operation, const Ready& ready) {
    if (mailboxes_->changed.wait_for(lock, std::chrono::seconds(20), ready)) return;
    throw Error(std::string(operation) + " timed out", ErrorCode::Timeout);
  }

  const int rank_;
  const int nRanks_;
  const std::shared_ptr<Mailboxes> mailboxes_;
};

}  // namespace mscclpp::test
