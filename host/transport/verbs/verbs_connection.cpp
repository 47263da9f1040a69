#include "verbs_connection.hpp"

#include <endian.h>

#include <algorithm>
#include <chrono>

#include "../../error_message.hpp"
#include "completion_error.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp::detail::ib {

namespace {

// How long an operation may wait for room in a queue: as long as a flush waits by default.
constexpr std::chrono::seconds patience{30};
// What was issued and never flushed mostly has arrived when a connection ends, or does so in this time.
constexpr std::chrono::seconds farewell{5};
// Ports allow 2 GiB and less; what is larger is sent as several messages.
constexpr std::uint64_t largestMessage = std::uint64_t{1} << 30;
// A write is cut over queue pairs into parts of this size or more: a smaller one gains less than its requests cost.
constexpr std::uint64_t leastPart = 64 * 1024;
constexpr std::uint64_t partAlignment = 4096;

}  // namespace

VerbsConnection::VerbsConnection(std::shared_ptr<Context> context, const Endpoint& local, const Endpoint& remote,
                                 std::shared_ptr<VerbsEndpoint> endpoint, Details peer)
    : ConnectionBase(std::move(context), local, remote),
      endpoint_(std::move(endpoint)),
      peer_(std::move(peer)),
      mode_(agree(endpoint_->own(), peer_)),
      completions_(static_cast<std::size_t>(endpoint_->settings().maxCqPollNum)) {
  if (mode_ == SignalMode::Atomic) {
    returned_ = std::make_unique<std::uint64_t>(0);
    returnedRegion_ = endpoint_->parts().regions->share(returned_.get(), sizeof(*returned_));
  }
  endpoint_->connect(peer_, mode_);
}

VerbsConnection::~VerbsConnection() {
  try {
    flush(farewell);
  } catch (const std::exception&) {  // whoever wanted to know has asked
  }
  endpoint_->close();
}

std::string VerbsConnection::path() const {
  return nameOf(local().transport()) + " (" + endpoint_->own().nic + ") to " + peer_.process + " (" + peer_.nic + ")";
}

void VerbsConnection::findInboundFailure() {
  const std::string inbound = endpoint_->inbound().failure();
  if (!inbound.empty()) failure_ = Failure{inbound, ErrorCode::RemoteError};
}

void VerbsConnection::throwFailure() {
  if (!failure_ && mode_ == SignalMode::Immediate) findInboundFailure();
  if (failure_) throw Error("the connection over " + path() + " broke: " + failure_->what, failure_->code);
}

// Runs a part of an operation. Whatever it throws ends the connection: some of the operation may be under way.
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
    startAdded();
    poll();
    check();
    if (condition()) return;
    const auto waited = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start);
    if (waited >= patience) {
      failure_ = Failure{std::string("there was no ") + what + " for " + std::to_string(patience.count()) + " s",
                         ErrorCode::Timeout};
      throwFailure();
    }
    refuseIfAborted();
    awaitProgress(waited, patience - waited);
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
    const std::uint64_t parts = pairs.size() == 1 ? 1 : std::clamp<std::uint64_t>(size / leastPart, 1, pairs.size());
    const std::uint64_t part = parts == 1 ? size : (size / parts + partAlignment - 1) / partAlignment * partAlignment;
    std::uint64_t done = 0;
    for (std::uint64_t i = 0; i < parts && done < size; ++i) {
      const std::uint64_t bytes = i + 1 == parts ? size - done : std::min(part, size - done);
      addWrite(*pairs[i], write, done, bytes);
      done += bytes;
    }
    if (!held_) startAdded();
  });
}

const RegionTable::Source& VerbsConnection::sourceOf(const RegisteredMemory& memory) {
  const std::uint32_t id = RegionKeys::of(handleOf(memory)).id;
  const std::uint64_t address = addressOf(memory);
  RegionTable::Source& known = sources_[id % sources_.size()];
  if (known.id != id || known.address != address || known.size != memory.size()) {
    known = endpoint_->parts().regions->sourceOf(id, address, memory.size());
  }
  return known;
}

void VerbsConnection::startUpdate(const RegisteredMemory& dst, std::uint64_t dstOffset, std::uint64_t oldValue,
                                  std::uint64_t newValue) {
  check();
  const RegionKeys keys = RegionKeys::of(handleOf(dst, remote().transport()));
  const std::uint64_t delta = newValue - oldValue;
  step([&] {
    settleOthers();
    if (mode_ == SignalMode::Atomic) {
      addFetchAndAdd(addressOf(dst) + dstOffset, keys.remoteKey, delta);
    } else {
      addCodes(encodeNumber(SignalCode::What::Add, nameWord({keys.id, dstOffset}), delta));
    }
    if (!held_) startAdded();
  });
}

void VerbsConnection::endBatch() {
  if (!held_) return;
  held_ = false;
  check();
  step([&] { startAdded(); });
}

// Apart from what every request runs through, which stays short.
[[gnu::noinline]] void VerbsConnection::waitForRoom(const QueuePair& pair) {
  waitUntil([&] { return pair.room() > 0; }, "room in the queue");
}

ibv_send_wr& VerbsConnection::addRequest(QueuePair& pair) {
  if (pair.full()) pair.start();
  if (pair.room() == 0) waitForRoom(pair);
  return pair.add(issued() + 1);
}

void VerbsConnection::addWrite(QueuePair& pair, const Write& write, std::uint64_t offset, std::uint64_t size) {
  const std::uint64_t most = std::min<std::uint64_t>(endpoint_->port().attributes.max_msg_sz, largestMessage);
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
  *request.sg_list = {reinterpret_cast<std::uint64_t>(returned_.get()), sizeof(*returned_),
                      returnedRegion_->localKey()};
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

std::uint32_t VerbsConnection::nameWord(const Word& word) {
  if (const auto known = named_.find(word); known != named_.end()) return known->second;
  const std::uint32_t index = nextIndex_;
  nextIndex_ = (nextIndex_ + 1) % SignalCode::targets;
  addCodes(encodeNumber(SignalCode::What::Region, index, word.region));
  addCodes(encodeNumber(SignalCode::What::Offset, index, word.offset));
  if (index < wordOf_.size()) {
    named_.erase(wordOf_[index]);
    wordOf_[index] = word;
  } else {
    wordOf_.push_back(word);
  }
  named_[word] = index;
  return index;
}

// Queue pairs do not order their requests among each other, and completions are all that tells when one is done.
void VerbsConnection::settleOthers() {
  const auto& pairs = endpoint_->pairs();
  const auto settled = [&] {
    return std::all_of(pairs.begin() + 1, pairs.end(), [](const auto& pair) { return pair->firstIncomplete() == 0; });
  };
  if (!settled()) waitUntil(settled, "completion of the writes before a signal");
}

void VerbsConnection::startAdded() {
  for (const auto& pair : endpoint_->pairs()) pair->start();
}

void VerbsConnection::poll() {
  const auto& pairs = endpoint_->pairs();
  const int most = static_cast<int>(completions_.size());
  int count = most;
  while (count == most && !failure_) {
    count = ibv_poll_cq(endpoint_->sent(), most, completions_.data());
    if (count < 0) failure_ = Failure{"reading the completion queue failed", ErrorCode::SystemError};
    for (int i = 0; i < count && !failure_; ++i) {
      const ibv_wc& completion = completions_[static_cast<std::size_t>(i)];
      if (completion.status != IBV_WC_SUCCESS) {
        // Its own receiver breaks off a queue pair whose peer signals nonsense: that is why then.
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
    step([&] { startAdded(); });
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
