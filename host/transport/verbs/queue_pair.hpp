// One reliable connection between two verbs devices: a queue of requests, started in batches.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "details.hpp"
#include "mscclpp/host/endpoint.hpp"
#include "verbs_device.hpp"

namespace mscclpp::detail::ib {

/// What the requests of one queue pair need room for.
struct QueuePairSize {
  int sends;
  /// Requests that are started together at most.
  int batch;
  /// 0 without signals by immediate.
  int receives;
};

/// Requests are numbered 1, 2, ... and complete in that order. One thread at a time, but for postReceive and breakOff.
class QueuePair {
 public:
  /// `device`, `port` and the completion queues must outlive it. It accepts nothing before connect().
  QueuePair(const VerbsDevice& device, const Port& port, const EndpointConfig::Ib& config, ibv_cq* sent,
            ibv_cq* received, const QueuePairSize& size);

  QueuePairAddress address() const noexcept { return {pair_->qp_num, firstPacket_}; }
  /// Data up to this size may travel in the request itself: the device need not fetch it.
  std::uint32_t inlineBytes() const noexcept { return inlineBytes_; }

  void connect(const Port& port, const EndpointConfig::Ib& config, const Details& peer, const QueuePairAddress& target,
               std::uint32_t atomics);

  /// Adds a request to the batch: without flags and buffers, though sg_list has room for one. The caller fills in the
  /// opcode and all that belongs to it. There must be room(), and a full() batch must be started first. `operation` is
  /// what the request belongs to.
  ibv_send_wr& add(std::uint64_t operation) {
    operations_[++added_ & mask_] = operation;
    ibv_send_wr& request = requests_[static_cast<std::size_t>(batch_++)].request;
    request.wr_id = added_;
    request.num_sge = 0;
    request.send_flags = 0;
    return request;
  }
  bool full() const noexcept { return batch_ == static_cast<int>(requests_.size()); }
  /// Requests that fit beside those under way.
  int room() const noexcept { return size_.sends - static_cast<int>(added_ - done_); }
  /// Starts what was added, with one call to the device. Only the last request reports its completion, which implies
  /// that of those before. Throws IbError.
  void start();

  /// Called for each completion that a completion queue reports for this queue pair, with its request's number.
  void complete(std::uint64_t request) noexcept { done_ = request; }
  /// The operation of the first request that is not complete; 0 if all are.
  std::uint64_t firstIncomplete() const noexcept { return done_ == added_ ? 0 : operations_[(done_ + 1) & mask_]; }

  /// Lets one more write-with-immediate in. Any thread.
  void postReceive();

  /// Ends it for both sides: the peer hears no more, and its requests fail. Any thread.
  void breakOff() noexcept;

 private:
  /// Linked to the next slot once and for all. Clearing one for each request would take longer than to fill it in.
  struct Slot {
    ibv_send_wr request;
    ibv_sge buffer;
  };

  Owner<ibv_qp> pair_;
  QueuePairSize size_;
  std::uint32_t firstPacket_;
  std::uint32_t inlineBytes_;
  std::vector<Slot> requests_;
  int batch_ = 0;
  std::uint64_t added_ = 0;
  std::uint64_t done_ = 0;
  /// By the lower bits of the number.
  std::vector<std::uint64_t> operations_;
  std::uint64_t mask_;
};

}  // namespace mscclpp::detail::ib
