#include "host/transport/verbs/verbs_connection.hpp"

#include <endian.h>

#include <algorithm>
#include <chrono>

#include "host/base/error_message.hpp"
#include "host/transport/verbs/completion_error.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail::ib {

namespace {

// How long an operation may wait for free slots in a queue: the default timeout of a flush.
constexpr std::chrono::seconds queueTimeout{30};
// How long the destructor waits for operations that were issued and not flushed.
constexpr std::chrono::seconds drainTimeout{5};
// Ports allow at most 2 GiB; larger writes are sent as several messages.
constexpr std::uint64_t maxMessageBytes = std::uint64_t{1} << 30;
// A write is striped across queue pairs in parts of at least this size: smaller parts cost more than they gain.
constexpr std::uint64_t minPartBytes = 64 * 1024;
constexpr std::uint64_t partAlignment = 4096;

}  // namespace

VerbsConnection::VerbsConnection(std::shared_ptr<Context> context, const Endpoint& local, const Endpoint& remote,
                                 std::shared_ptr<VerbsEndpoint> endpoint, EndpointInfo peer)
    : NetworkConnection(std::move(context), local, remote),
      endpoint_(std::move(endpoint)),
      peer_(std::move(peer)),
      mode_(negotiate(endpoint_->localInfo(), peer_)),
      completions_(static_cast<std::size_t>(endpoint_->settings().maxCqPollNum)) {
  if (mode_ == SignalMode::Atomic) {
    fetchResult_ = std::make_unique<std::uint64_t>(0);
    fetchResultRegion_ = endpoint_->resources().regions->registerMemory(fetchResult_.get(), sizeof(*fetchResult_));
  }
  endpoint_->connect(peer_, mode_);
}

VerbsConnection::~VerbsConnection() {
  if (isForkedCopy()) return;  // its completions belong to the parent
  try {
    flush(drainTimeout);
  } catch (const std::exception&) {  // reported by the calls before, if there were any
  }
  endpoint_->close();
}

std::string VerbsConnection::description() const {
  return nameOf(local().transport()) + " (" + endpoint_->localInfo().nic + ") to " + peerText(peer_.process) + " (" +
         peer_.nic + ")";
}

void VerbsConnection::findInboundFailure() {
  const std::string inbound = endpoint_->inbound().failure();
  if (!inbound.empty()) failure_ = Failure{inbound, ErrorCode::RemoteError};
}

void VerbsConnection::throwFailure() {
  if (!failure_ && mode_ == SignalMode::Immediate) findInboundFailure();
  if (failure_) throw Error("the connection over " + description() + " failed: " + failure_->what, failure_->code);
}

// Runs a step of an operation. An exception fails the connection: part of the operation may have been posted.
template <typename Step>
void VerbsConnection::step(Step step) {
  try {
    step();
  } catch (const BaseError& error) {
    if (!failure_) failure_ = Failure{messageOf(error), detail::codeOf(error)};
    throw;
  }
}

template <typename Condition>
void VerbsConnection::waitUntil(Condition condition, const char* what) {
  const auto start = std::chrono::steady_clock::now();
  while (!condition()) {
    postRequests();
    poll();
    check();
    if (condition()) return;
    const auto waited = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start);
    if (waited >= queueTimeout) {
      failure_ = Failure{std::string("there was no ") + what + " for " + std::to_string(queueTimeout.count()) + " s",
                         ErrorCode::Timeout};
      throwFailure();
    }
    throwIfEnded();
    waitForProgress(waited, queueTimeout - waited);
  }
}

void VerbsConnection::startWrite(const RegisteredMemory& dst, std::uint64_t dstOffset, const RegisteredMemory& src,
                                 std::uint64_t srcOffset, std::uint64_t size) {
  check();
  const MemoryHandle& target = handleOf(dst, remote().transport());
  const auto& pairs = endpoint_->pairs();
  const Write write{addressOf(dst) + dstOffset, RegionKeys::of(target).remoteKey, addressOf(src) + srcOffset,
                    sourceOf(src)};
  step([&] {
    const std::uint64_t parts = pairs.size() == 1 ? 1 : std::clamp<std::uint64_t>(size / minPartBytes, 1, pairs.size());
    const std::uint64_t part = parts == 1 ? size : (size / parts + partAlignment - 1) / partAlignment * partAlignment;
    std::uint64_t done = 0;
    for (std::uint64_t i = 0; i < parts && done < size; ++i) {
      const std::uint64_t bytes = i + 1 == parts ? size - done : std::min(part, size - done);
      addWrite(*pairs[i], write, done, bytes);
      done += bytes;
    }
    if (!isBatching()) postRequests();
  });
}

const RegionTable::Source& VerbsConnection::sourceOf(const RegisteredMemory& memory) {
  const std::uint32_t id = RegionKeys::of(handleOf(memory)).id;
  const std::uint64_t address = addressOf(memory);
  RegionTable::Source& known = sources_[id % sources_.size()];
  if (known.id != id || known.address != address || known.size != memory.size()) {
    known = endpoint_->resources().regions->sourceOf(id, address, memory.size());
  }
  return known;
}

void VerbsConnection::startUpdate(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t oldValue,
                                  std::uint64_t newValue) {
  check();
  const RegionKeys keys = RegionKeys::of(handleOf(dst, remote().transport()));
  const std::uint64_t delta = newValue - oldValue;
  step([&] {
    drainOtherQueuePairs();
    if (mode_ == SignalMode::Atomic) {
      addFetchAndAdd(addressOf(dst) + dstOffset, keys.remoteKey, delta);
    } else {
      addCodes(encodeNumber(SignalCode::Opcode::Add, assignIndex({keys.id, dstOffset}), delta));
    }
    if (!isBatching()) postRequests();
  });
}

void VerbsConnection::postBatch() {
  check();
  step([&] { postRequests(); });
}

// Not inlined, to keep the code path of every request short.
[[gnu::noinline]] void VerbsConnection::waitForFreeSlot(const QueuePair& pair) {
  waitUntil([&] { return pair.freeSlots() > 0; }, "free slot in the send queue");
}

ibv_send_wr& VerbsConnection::addRequest(QueuePair& pair) {
  if (pair.full()) pair.post();
  if (pair.freeSlots() == 0) waitForFreeSlot(pair);
  return pair.add(issued() + 1);
}

void VerbsConnection::addWrite(QueuePair& pair, const Write& write, std::uint64_t offset, std::uint64_t size) {
  const std::uint64_t most = std::min<std::uint64_t>(endpoint_->port().attributes.max_msg_sz, maxMessageBytes);
  for (const std::uint64_t end = offset + size; offset < end;) {
    const std::uint64_t bytes = std::min(end - offset, most);
    ibv_send_wr& request = addRequest(pair);
    request.opcode = IBV_WR_RDMA_WRITE;
    request.wr.rdma.remote_addr = write.remoteAddress + offset;
    request.wr.rdma.rkey = write.remoteKey;
    *request.sg_list = {write.localAddress + offset, static_cast<std::uint32_t>(bytes), write.source.localKey};
    request.num_sge = 1;
    if (write.source.onHost && bytes <= pair.inlineBytes()) request.send_flags = IBV_SEND_INLINE;
    offset += bytes;
  }
}

void VerbsConnection::addFetchAndAdd(std::uint64_t address, std::uint32_t key, std::uint64_t delta) {
  ibv_send_wr& request = addRequest(first());
  request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  request.wr.atomic.remote_addr = address;
  request.wr.atomic.rkey = key;
  request.wr.atomic.compare_add = delta;
  *request.sg_list = {reinterpret_cast<std::uint64_t>(fetchResult_.get()), sizeof(*fetchResult_),
                      fetchResultRegion_->localKey()};
  request.num_sge = 1;
}

void VerbsConnection::addCodes(const SignalCodes& codes) {
  for (int i = 0; i < codes.count; ++i) {
    ibv_send_wr& request = addRequest(first());
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.wr.rdma = {};  // no data
    request.imm_data = htobe32(codes.codes[static_cast<std::size_t>(i)].encode());
  }
}

std::uint32_t VerbsConnection::assignIndex(const RemoteWord& word) {
  if (const auto known = indexOf_.find(word); known != indexOf_.end()) return known->second;
  const std::uint32_t index = nextIndex_;
  nextIndex_ = (nextIndex_ + 1) % SignalCode::targets;
  addCodes(encodeNumber(SignalCode::Opcode::Region, index, word.region));
  addCodes(encodeNumber(SignalCode::Opcode::Offset, index, word.offset));
  if (index < words_.size()) {
    indexOf_.erase(words_[index]);
    words_[index] = word;
  } else {
    words_.push_back(word);
  }
  indexOf_[word] = index;
  return index;
}

// Requests of different queue pairs are not ordered; only a completion shows that one is done.
void VerbsConnection::drainOtherQueuePairs() {
  const auto& pairs = endpoint_->pairs();
  const auto drained = [&] {
    return std::all_of(pairs.begin() + 1, pairs.end(), [](const auto& pair) { return pair->firstIncomplete() == 0; });
  };
  if (!drained()) waitUntil(drained, "completion of the writes before a signal");
}

void VerbsConnection::postRequests() {
  for (const auto& pair : endpoint_->pairs()) pair->post();
}

void VerbsConnection::poll() {
  const auto& pairs = endpoint_->pairs();
  const int most = static_cast<int>(completions_.size());
  int count = most;
  while (count == most && !failure_) {
    count = ibv_poll_cq(endpoint_->sendCq(), most, completions_.data());
    if (count < 0) failure_ = Failure{"reading the completion queue failed", ErrorCode::SystemError};
    for (int i = 0; i < count && !failure_; ++i) {
      const ibv_wc& completion = completions_[static_cast<std::size_t>(i)];
      if (completion.status != IBV_WC_SUCCESS) {
        // The receiver sets a queue pair to the error state if its peer sends invalid signals: then this is the cause.
        if (completion.status == IBV_WC_WR_FLUSH_ERR && mode_ == SignalMode::Immediate) findInboundFailure();
        if (!failure_) failure_ = Failure{describe(completion), codeOf(completion.status)};
        return;
      }
      for (const auto& pair : pairs) {
        if (pair->address().number == completion.qp_num) pair->complete(completion.wr_id);
      }
    }
  }
}

std::uint64_t VerbsConnection::completed() {
  if (!failure_) {
    step([&] { postRequests(); });
    poll();
  }
  std::uint64_t done = issued();
  for (const auto& pair : endpoint_->pairs()) {
    const std::uint64_t incomplete = pair->firstIncomplete();
    if (incomplete != 0) done = std::min(done, incomplete - 1);
  }
  if (done < issued()) check();
  return done;
}

}  // namespace mscclpp::detail::ib
