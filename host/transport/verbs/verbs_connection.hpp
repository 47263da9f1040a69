// A connection over verbs: one or several queue pairs to one peer.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../../connection_base.hpp"
#include "mscclpp/host/error.hpp"
#include "verbs_endpoint.hpp"

namespace mscclpp::detail::ib {

/// The first queue pair carries signals and small writes, so a signal follows them in its queue. Large writes are cut
/// over all queue pairs; a signal after one is started when the other queue pairs have nothing under way.
class VerbsConnection : public ConnectionBase {
 public:
  VerbsConnection(std::shared_ptr<Context> context, const Endpoint& local, const Endpoint& remote,
                  std::shared_ptr<VerbsEndpoint> endpoint, Details peer);
  /// Waits a few seconds for what was issued and never flushed.
  ~VerbsConnection() override;

  std::uint64_t completed() override;
  void beginBatch() override { held_ = true; }
  void endBatch() override;

 protected:
  void startWrite(const RegisteredMemory& dst, std::uint64_t dstOffset, const RegisteredMemory& src,
                  std::uint64_t srcOffset, std::uint64_t size) override;
  void startUpdate(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t oldValue,
                   std::uint64_t newValue) override;
  std::string path() const override;

 private:
  struct Write {
    std::uint64_t remoteAddress;
    std::uint32_t remoteKey;
    std::uint64_t localAddress;
    const RegionTable::Source& source;
  };
  /// A word as the peer's table of regions knows it.
  struct Word {
    std::uint32_t region;
    std::uint64_t offset;
    friend auto operator<=>(const Word&, const Word&) = default;
  };
  struct Failure {
    std::string what;
    ErrorCode code;
  };

  const RegionTable::Source& sourceOf(const RegisteredMemory& memory);
  QueuePair& first() { return *endpoint_->pairs().front(); }
  void waitForRoom(const QueuePair& pair);
  ibv_send_wr& addRequest(QueuePair& pair);
  void addWrite(QueuePair& pair, const Write& write, std::uint64_t offset, std::uint64_t size);
  void addFetchAndAdd(std::uint64_t address, std::uint32_t key, std::uint64_t delta);
  void addCodes(const SignalCodes& codes);
  std::uint32_t nameWord(const Word& word);
  void settleOthers();
  void startAdded();
  void poll();
  /// Throws if the connection is over.
  void check() {
    if (failure_ || mode_ == SignalMode::Immediate) throwFailure();
  }
  void throwFailure();
  void findInboundFailure();
  template <typename Step>
  void step(Step step);
  template <typename Condition>
  void waitUntil(Condition condition, const char* what);

  std::shared_ptr<VerbsEndpoint> endpoint_;
  Details peer_;
  SignalMode mode_;
  bool held_ = false;
  /// The regions written from lately, by number modulo their count: most connections write from a few.
  std::array<RegionTable::Source, 8> sources_{};
  std::vector<ibv_wc> completions_;
  std::optional<Failure> failure_;
  /// What fetch-and-adds return, which nobody reads.
  std::unique_ptr<std::uint64_t> returned_;
  std::shared_ptr<const Region> returnedRegion_;
  /// The words that the peer has been told, and the index of each; the oldest gives way when all indices are used.
  std::map<Word, std::uint32_t> named_;
  std::vector<Word> wordOf_;
  std::uint32_t nextIndex_ = 0;
};

}  // namespace mscclpp::detail::ib
