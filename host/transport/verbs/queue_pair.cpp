#include "host/transport/verbs/queue_pair.hpp"

#include <sodium.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail::ib {

namespace {

// Inline data of a request; devices that support less are used without inline data.
constexpr std::uint32_t maxInlineBytes = 220;
// The hop limit of packets: far more than any fabric needs.
constexpr std::uint8_t hopLimit = 64;

IbvPtr<ibv_qp> create(const VerbsDevice& device, ibv_cq* sendCq, ibv_cq* recvCq, const QueuePairCapacity& size,
                      std::uint32_t& inlineBytes) {
  ibv_qp_init_attr attributes{};
  attributes.qp_type = IBV_QPT_RC;
  attributes.send_cq = sendCq;
  attributes.recv_cq = recvCq;
  attributes.cap.max_send_wr = static_cast<std::uint32_t>(size.sends);
  attributes.cap.max_recv_wr = static_cast<std::uint32_t>(size.receives);
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_recv_sge = 1;
  for (const std::uint32_t bytes : {maxInlineBytes, std::uint32_t{0}}) {
    ibv_qp_init_attr attempt = attributes;  // the call writes to it
    attempt.cap.max_inline_data = bytes;
    IbvPtr<ibv_qp> pair(ibvSymbols().createQp(device.domain(), &attempt));
    inlineBytes = attempt.cap.max_inline_data;
    if (pair) return pair;
  }
  throw IbError("creating a queue pair of " + device.name() + " for " + std::to_string(size.sends) +
                    " requests; ask for fewer (EndpointConfig::maxWriteQueueSize)",
                errno);
}

void modify(ibv_qp* pair, ibv_qp_attr& attributes, int mask, const char* what) {
  if (const int failure = ibvSymbols().modifyQp(pair, &attributes, mask); failure != 0) {
    throw IbError(std::string(what) + " a queue pair", failure);
  }
}

}  // namespace

QueuePair::QueuePair(const VerbsDevice& device, const Port& port, const EndpointConfig::Ib& config, ibv_cq* sendCq,
                     ibv_cq* recvCq, const QueuePairCapacity& size)
    : size_(size),
      // Unpredictable, so that packets of other hosts are not accepted.
      initialPsn_(::randombytes_uniform(1U << 24)),
      inlineBytes_(0),
      requests_(static_cast<std::size_t>(size.batch)),
      operations_(std::bit_ceil(static_cast<std::size_t>(size.sends))),
      mask_(operations_.size() - 1) {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    requests_[i].request.sg_list = &requests_[i].buffer;
    if (i > 0) requests_[i - 1].request.next = &requests_[i].request;
  }
  pair_ = create(device, sendCq, recvCq, size, inlineBytes_);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = port.number;
  attributes.pkey_index = static_cast<std::uint16_t>(config.pkeyIndex);
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  if (device.hasAtomics()) attributes.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
  modify(pair_.get(), attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "preparing");
}

void QueuePair::connect(const Port& port, const EndpointConfig::Ib& config, const EndpointInfo& peer,
                        const QueuePairAddress& target, std::uint32_t atomics) {
  ibv_qp_attr receive{};
  receive.qp_state = IBV_QPS_RTR;
  receive.path_mtu = static_cast<ibv_mtu>(std::min<std::uint32_t>(port.attributes.active_mtu, peer.mtu));
  receive.dest_qp_num = target.number;
  receive.rq_psn = target.initialPsn;
  receive.max_dest_rd_atomic = static_cast<std::uint8_t>(atomics);
  receive.min_rnr_timer = 12;  // 0.64 ms: about the time a peer's thread takes to post new receives
  receive.ah_attr.port_num = port.number;
  receive.ah_attr.sl = static_cast<std::uint8_t>(config.sl);
  receive.ah_attr.dlid = static_cast<std::uint16_t>(peer.lid);
  // InfiniBand needs the global header only if a port requires it, or between subnets (the first half of a GID).
  const bool otherSubnet = peer.hasGid && std::memcmp(port.gid.data(), peer.gid.data(), 8) != 0;
  const bool required = (port.attributes.flags & IBV_QPF_GRH_REQUIRED) != 0;
  receive.ah_attr.is_global = port.ethernet() || required || (otherSubnet && port.gidIndex >= 0) ? 1 : 0;
  if (receive.ah_attr.is_global != 0) {
    std::memcpy(receive.ah_attr.grh.dgid.raw, peer.gid.data(), peer.gid.size());
    receive.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(port.gidIndex);
    receive.ah_attr.grh.hop_limit = hopLimit;
    receive.ah_attr.grh.traffic_class = static_cast<std::uint8_t>(config.trafficClass);
  }
  modify(pair_.get(), receive,
         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
             IBV_QP_MIN_RNR_TIMER,
         "addressing the peer with");

  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  send.sq_psn = initialPsn_;
  send.timeout = static_cast<std::uint8_t>(config.timeout);
  send.retry_cnt = static_cast<std::uint8_t>(config.retryCount);
  // No limit: a peer that is slow to post receives has not failed, and every wait for it has its own timeout.
  send.rnr_retry = 7;
  send.max_rd_atomic = static_cast<std::uint8_t>(atomics);
  modify(pair_.get(), send,
         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
         "starting");
}

void QueuePair::post() {
  if (batch_ == 0) return;
  ibv_send_wr& last = requests_[static_cast<std::size_t>(batch_) - 1].request;
  last.send_flags |= IBV_SEND_SIGNALED;
  batch_ = 0;
  ibv_send_wr* const following = std::exchange(last.next, nullptr);
  ibv_send_wr* refused = nullptr;
  const int failure = ibv_post_send(pair_.get(), &requests_.front().request, &refused);
  last.next = following;
  if (failure != 0) throw IbError("posting requests to a queue pair", failure);
}

void QueuePair::postReceive() {
  ibv_recv_wr request{};
  ibv_recv_wr* refused = nullptr;
  if (const int failure = ibv_post_recv(pair_.get(), &request, &refused); failure != 0) {
    throw IbError("posting a receive request for the peer's signals", failure);
  }
}

void QueuePair::setError() noexcept {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  // If this fails, the queue pair is in the error state already.
  static_cast<void>(ibvSymbols().modifyQp(pair_.get(), &attributes, IBV_QP_STATE));
}

}  // namespace mscclpp::detail::ib
