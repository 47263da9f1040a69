// One reliable connection between two verbs devices: a queue of requests, posted in batches.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "host/transport/verbs/endpoint_info.hpp"
#include "host/transport/verbs/verbs_device.hpp"
#include "mscclpp/host/transport/endpoint.hpp"

namespace mscclpp::detail::ib {

/// The capacity of one queue pair, in requests.
struct QueuePairCapacity {
  int sends;
  /// Maximum number of requests posted together.
  int batch;
  /// 0 without signals by immediate data.
  int receives;
};

/// Requests are numbered 1, 2, ... and complete in that order. Used by one thread at a time, except postReceive and
/// setError.
class QueuePair {
 public:
  /// `device`, `port` and the completion queues must outlive it. It receives nothing before connect().
  QueuePair(const VerbsDevice& device, const Port& port, const EndpointConfig::Ib& config, ibv_cq* sendCq,
            ibv_cq* recvCq, const QueuePairCapacity& size);

  QueuePairAddress address() const noexcept { return {pair_->qp_num, initialPsn_}; }
  /// Data up to this size may be sent inline in the request: the device need not fetch it.
  std::uint32_t inlineBytes() const noexcept { return inlineBytes_; }

  void connect(const Port& port, const EndpointConfig::Ib& config, const EndpointInfo& peer,
               const QueuePairAddress& target, std::uint32_t atomics);

  /// Adds a request to the batch: without flags and buffers, but with space for one entry in sg_list. The caller fills
  /// in the opcode and its fields. There must be freeSlots(), and a full() batch must be posted first. `operation` is
  /// the operation that the request belongs to.
  ibv_send_wr& add(std::uint64_t operation) {
    operations_[++added_ & mask_] = operation;
    ibv_send_wr& request = requests_[static_cast<std::size_t>(batch_++)].request;
    request.wr_id = added_;
    request.num_sge = 0;
    request.send_flags = 0;
    return request;
  }
  bool full() const noexcept { return batch_ == static_cast<int>(requests_.size()); }
  /// Free slots for requests.
  int freeSlots() const noexcept { return size_.sends - static_cast<int>(added_ - done_); }
  /// Posts the batch with one call to the device. Only the last request is signaled; its completion implies that of the
  /// earlier ones. Throws IbError.
  void post();

  /// Called for each completion that a completion queue reports for this queue pair, with the number of its request.
  void complete(std::uint64_t request) noexcept { done_ = request; }
  /// The operation of the first request that has not completed; 0 if all have.
  std::uint64_t firstIncomplete() const noexcept { return done_ == added_ ? 0 : operations_[(done_ + 1) & mask_]; }

  /// Posts a receive for one more write-with-immediate. Any thread may call it.
  void postReceive();

  /// Ends the connection for both sides: requests of the peer fail. Any thread may call it.
  void setError() noexcept;

 private:
  /// Linked to the next slot at construction. Clearing a slot for each request would take longer than filling it in.
  struct Slot {
    ibv_send_wr request;
    ibv_sge buffer;
  };

  IbvPtr<ibv_qp> pair_;
  QueuePairCapacity size_;
  std::uint32_t initialPsn_;
  std::uint32_t inlineBytes_;
  std::vector<Slot> requests_;
  int batch_ = 0;
  std::uint64_t added_ = 0;
  std::uint64_t done_ = 0;
  /// Indexed by the low bits of the request number.
  std::vector<std::uint64_t> operations_;
  std::uint64_t mask_;
};

}  // namespace mscclpp::detail::ib
