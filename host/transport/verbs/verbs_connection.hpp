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

#include "host/transport/network_connection.hpp"
#include "host/transport/verbs/verbs_endpoint.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail::ib {

/// The first queue pair carries signals and small writes, so a signal follows them in its queue. Large writes are
/// striped across all queue pairs; a signal after one is posted when the other queue pairs are idle.
class VerbsConnection : public NetworkConnection {
 public:
  VerbsConnection(std::shared_ptr<Context> context, const Endpoint& local, const Endpoint& remote,
                  std::shared_ptr<VerbsEndpoint> endpoint, EndpointInfo peer);
  /// Waits up to 5 s for operations that were issued and not flushed. In a forked child it does nothing.
  ~VerbsConnection() override;

  std::uint64_t completed() override;

 protected:
  void postBatch() override;
  void startWrite(const RegisteredMemory& dst, std::uint64_t dstOffset, const RegisteredMemory& src,
                  std::uint64_t srcOffset, std::uint64_t size) override;
  void startUpdate(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t oldValue,
                   std::uint64_t newValue) override;
  std::string description() const override;

 private:
  struct Write {
    std::uint64_t remoteAddress;
    std::uint32_t remoteKey;
    std::uint64_t localAddress;
    const RegionTable::Source& source;
  };
  /// A word as identified by the peer's table of regions.
  struct RemoteWord {
    std::uint32_t region;
    std::uint64_t offset;
    friend auto operator<=>(const RemoteWord&, const RemoteWord&) = default;
  };
  struct Failure {
    std::string what;
    ErrorCode code;
  };

  const RegionTable::Source& sourceOf(const RegisteredMemory& memory);
  QueuePair& first() { return *endpoint_->pairs().front(); }
  void waitForFreeSlot(const QueuePair& pair);
  ibv_send_wr& addRequest(QueuePair& pair);
  void addWrite(QueuePair& pair, const Write& write, std::uint64_t offset, std::uint64_t size);
  void addFetchAndAdd(std::uint64_t address, std::uint32_t key, std::uint64_t delta);
  void addCodes(const SignalCodes& codes);
  std::uint32_t assignIndex(const RemoteWord& word);
  void drainOtherQueuePairs();
  void postRequests();
  void poll();
  /// Throws if the connection has failed.
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
  EndpointInfo peer_;
  SignalMode mode_;
  /// A cache of source regions, by id modulo its size: most connections write from a few.
  std::array<RegionTable::Source, 8> sources_{};
  std::vector<ibv_wc> completions_;
  std::optional<Failure> failure_;
  /// Destination of the old value that fetch-and-add returns, which is not used.
  std::unique_ptr<std::uint64_t> fetchResult_;
  std::shared_ptr<const Region> fetchResultRegion_;
  /// The words announced to the peer, and their indices; the oldest is replaced when all indices are used.
  std::map<RemoteWord, std::uint32_t> indexOf_;
  std::vector<RemoteWord> words_;
  std::uint32_t nextIndex_ = 0;
};

}  // namespace mscclpp::detail::ib
