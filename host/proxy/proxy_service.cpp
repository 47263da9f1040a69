#include "mscclpp/host/proxy/proxy_service.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "host/base/error_message.hpp"
#include "host/channel/semaphore_handle.hpp"
#include "host/cuda/gpu_backend.hpp"
#include "host/proxy/append_only_table.hpp"
#include "host/trace/trace_names.hpp"
#include "host/transport/connection_base.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/base/logger.hpp"
#include "mscclpp/host/communicator/communicator.hpp"

namespace mscclpp {

namespace {

// Kernels poll these words, so each has its own cache line.
constexpr std::size_t flushWordStride = 128;

// If the transport can store them, they are in GPU memory, where kernels see them sooner; otherwise the proxy thread
// stores them to host memory.
std::shared_ptr<void> allocateFlushWords(const Connection& connection, std::size_t bytes) {
  const Device& device = connection.localDevice();
  if (connection.base()->supportsStoreWhenComplete()) return detail::allocatePrivateGpuMemory(device.id, bytes);
  if (device.type == DeviceType::GPU) return detail::allocateGpuVisibleHostMemory(bytes);
  return {new char[bytes](), [](void* memory) { delete[] static_cast<char*>(memory); }};
}

const char* nameOf(TriggerField field) {
  switch (field) {
    case TriggerField::Size:
      return "size";
    case TriggerField::SrcOffset:
      return "source offset";
    case TriggerField::DstOffset:
      return "destination offset";
    case TriggerField::SrcMemory:
      return "id of the source memory";
    case TriggerField::DstMemory:
      return "id of the destination memory";
    case TriggerField::Semaphore:
      return "id of the semaphore";
    case TriggerField::None:
      break;
  }
  return "request";
}

std::string describe(const PortRequest& request) {
  std::string text = detail::nameOf(request.type);
  if (text.empty()) text = "type " + std::to_string(request.type);
  text += ", semaphore " + std::to_string(request.semaphore);
  if ((request.type & TriggerValue) != 0) {
    text += ", to memory " + std::to_string(request.dstMemory) + " + " + std::to_string(request.dstOffset);
  }
  if ((request.type & TriggerData) != 0) {
    text += ", " + std::to_string(request.size) + " bytes from memory " + std::to_string(request.srcMemory) + " + " +
            std::to_string(request.srcOffset) + " to memory " + std::to_string(request.dstMemory) + " + " +
            std::to_string(request.dstOffset);
  }
  return text;
}

}  // namespace

/// The state of the thread. The proxy's handler shares ownership, so it lives as long as the last channel.
template <PortTriggerLayout Trigger>
class BasicProxyService<Trigger>::State {
 public:
  explicit State(const ProxyServiceOptions& options)
      : fifos_(static_cast<std::size_t>(options.fifos)), trace_(options.thread.trace) {}

  struct Port {
    std::shared_ptr<Host2DeviceSemaphore> semaphore;
    Connection connection;
    /// One word per FIFO, flushWordStride apart: 1 + the position of the last request that, with all requests before
    /// it, has completed.
    std::shared_ptr<void> flushWords;

    std::shared_ptr<std::uint64_t> flushWord(int fifo) const {
      return {flushWords, reinterpret_cast<std::uint64_t*>(static_cast<char*>(flushWords.get()) +
                                                           static_cast<std::size_t>(fifo) * flushWordStride)};
    }
  };

  SemaphoreId add(std::shared_ptr<Host2DeviceSemaphore> semaphore) {
    if (!semaphore) throw Error("ProxyService: the semaphore must not be null", ErrorCode::InvalidUsage);
    const Connection connection = semaphore->connection();
    Port port{std::move(semaphore), connection, allocateFlushWords(connection, fifos_ * flushWordStride)};
    return checkedId(ports_.append(std::move(port), maxSemaphores), maxSemaphores, "semaphores");
  }
  MemoryId add(RegisteredMemory memory) {
    if (memory.size() == 0) throw Error("ProxyService: the memory is empty", ErrorCode::InvalidUsage);
    return checkedId(memories_.append(std::move(memory), maxMemories), maxMemories, "memories");
  }
  MemoryId nextMemory(std::uint32_t count) const {
    if (count == 0) throw Error("ProxyService: nextMemoryId needs a positive count", ErrorCode::InvalidUsage);
    const std::uint32_t next = memories_.size();
    checkedId(next + std::uint64_t{count} - 1, maxMemories, "memories");
    return next;
  }
  const Port& port(SemaphoreId id) const {
    const Port* port = ports_.find(id);
    if (port == nullptr) {
      throw Error("ProxyService: there is no semaphore " + std::to_string(id) + "; " + std::to_string(ports_.size()) +
                      " have been added",
                  ErrorCode::InvalidUsage);
    }
    return *port;
  }
  /// The source, if kernels may read its words themselves and the connection can write values; otherwise empty.
  std::span<const std::byte> readableSource(const Port& port, MemoryId dst, MemoryId src) const {
    const RegisteredMemory* to = memories_.find(dst);
    const RegisteredMemory* from = memories_.find(src);
    const Device& device = port.connection.localDevice();
    if (to == nullptr || from == nullptr || !port.connection.supportsWriteValue()) return {};
    if (device.type == DeviceType::GPU && detail::gpuOf(from->data()) != device.id) return {};
    // By the owner's address: over a network the memory is not mapped here.
    const auto isAligned = [](const RegisteredMemory& memory) {
      return reinterpret_cast<std::uintptr_t>(memory.originalDataPtr()) % 8 == 0;
    };
    if (!isAligned(*to) || !isAligned(*from)) return {};
    return {static_cast<const std::byte*>(from->data()), from->size()};
  }

  /// Executes one trigger, or throws an Error that names it.
  void handle(const Trigger& trigger, TriggerPosition from) {
    const PortRequest request = trigger.request();
    const auto id = static_cast<TraceId>(static_cast<TriggerType>(TraceId::Request) + (request.type & 15));
    if (trace_) trace_->begin(id, (request.type & TriggerData) != 0 ? request.size : 0);
    try {
      perform(trigger, request, from);
      if (trace_) trace_->end(id, request.semaphore);
    } catch (const BaseError& error) {
      startPendingBatches();
      throw Error("trigger " + std::to_string(from.position) + " of FIFO " + std::to_string(from.fifo) + " (" +
                      describe(request) + "): " + detail::messageOf(error),
                  detail::codeOf(error));
    }
  }

  /// Only while the thread is not running.
  void flushConnections(std::chrono::microseconds timeout) {
    for (std::uint32_t id = 0; id < ports_.size(); ++id) ports_.find(id)->connection.flush(timeout.count());
  }

  /// Posts the operations of one round over the FIFOs and reports the flushes that have completed. Returns whether some
  /// are still outstanding.
  bool progress() {
    endBatches();
    // Checks all of them: a later flush may be of a faster connection.
    std::erase_if(flushes_, [this](Flush& flush) {
      if (flush.connection.completed() < flush.issued) return false;
      finish(flush.word.get(), flush.position, flush.semaphore);
      return true;
    });
    return !flushes_.empty();
  }

 private:
  struct Flush {
    Connection connection;
    std::uint64_t issued;
    std::shared_ptr<std::uint64_t> word;
    std::uint64_t position;
    SemaphoreId semaphore;
  };

  void finish(std::uint64_t* word, std::uint64_t position, SemaphoreId semaphore) const {
    storeFlushPosition(word, position);
    if (trace_) trace_->point(TraceId::FlushComplete, semaphore);
  }

  static std::string unknown(const char* what, std::uint32_t id, std::uint32_t known) {
    return std::string("there is no ") + what + " " + std::to_string(id) + "; " + std::to_string(known) +
           " have been added";
  }

  static std::uint32_t checkedId(std::uint64_t id, std::uint64_t limit, const char* what) {
    if (id >= limit) {
      throw Error("ProxyService: its triggers allow " + std::to_string(limit) + " " + what +
                      "; use WideProxyService, or more services",
                  ErrorCode::InvalidUsage);
    }
    return static_cast<std::uint32_t>(id);
  }

  // A later flush may have been found complete first, if the connection made progress in between: the word never
  // decreases.
  static void storeFlushPosition(std::uint64_t* word, std::uint64_t position) {
    const std::atomic_ref done(*word);
    if (done.load(std::memory_order_relaxed) <= position) done.store(position + 1, std::memory_order_release);
  }

  void perform(const Trigger& trigger, const PortRequest& request, TriggerPosition from) {
    const TriggerType type = request.type;
    if (type == 0 && trigger.overflow() != TriggerField::None) {
      throw Error(std::string("the ") + nameOf(trigger.overflow()) + ", " + std::to_string(trigger.overflowValue()) +
                      ", does not fit the 16-byte trigger; use WideProxyService and its channels",
                  ErrorCode::InvalidUsage);
    }
    const TriggerType beside = (type & TriggerValue) != 0 ? TriggerValue | TriggerFlag : ~TriggerType{0};
    if (type == 0 || (type & ~(TriggerData | TriggerFlag | TriggerSync | TriggerValue)) != 0 || (type & ~beside) != 0) {
      throw Error("invalid trigger type " + std::to_string(type), ErrorCode::InvalidUsage);
    }
    Port* port = ports_.find(request.semaphore);
    if (port == nullptr) {
      throw Error(unknown("semaphore", request.semaphore, ports_.size()), ErrorCode::InvalidUsage);
    }
    batch(port->connection);
    if ((type & TriggerData) != 0) {
      const RegisteredMemory* dst = memories_.find(request.dstMemory);
      const RegisteredMemory* src = memories_.find(request.srcMemory);
      if (dst == nullptr) throw Error(unknown("memory", request.dstMemory, memories_.size()), ErrorCode::InvalidUsage);
      if (src == nullptr) throw Error(unknown("memory", request.srcMemory, memories_.size()), ErrorCode::InvalidUsage);
      port->connection.write(*dst, request.dstOffset, *src, request.srcOffset, request.size);
    }
    if ((type & TriggerValue) != 0) {
      const RegisteredMemory* dst = memories_.find(request.dstMemory);
      if (dst == nullptr) throw Error(unknown("memory", request.dstMemory, memories_.size()), ErrorCode::InvalidUsage);
      port->connection.writeValue(*dst, request.dstOffset, request.size);
    }
    if ((type & TriggerFlag) != 0) port->semaphore->signal();
    if ((type & TriggerSync) != 0) startFlush(*port, request.semaphore, from);
  }

  // Operations of one round are posted together.
  void batch(Connection& connection) {
    if (std::find(batches_.begin(), batches_.end(), connection) != batches_.end()) return;
    connection.beginBatch();
    batches_.push_back(connection);
  }
  void endBatches() {
    for (Connection& connection : batches_) connection.endBatch();
    batches_.clear();
  }
  // Called before an invalid request ends the thread: the requests before it were valid.
  void startPendingBatches() noexcept {
    try {
      endBatches();
    } catch (const std::exception& error) {
      logMessage(LogLevel::Error, LogSubsystem::Exec,
                 "the requests before an invalid one could not be posted: ", error.what());
    }
  }

  void startFlush(Port& port, SemaphoreId semaphore, TriggerPosition from) {
    auto word = port.flushWord(from.fifo);
    if (port.connection.storeWhenComplete(word.get(), from.position + 1)) return;
    const std::uint64_t issued = port.connection.issued();
    if (port.connection.completed() >= issued) {
      finish(word.get(), from.position, semaphore);
    } else {
      flushes_.push_back({port.connection, issued, std::move(word), from.position, semaphore});
    }
  }

  static constexpr std::uint64_t maxMemories = std::uint64_t{1} << Trigger::bitsMemoryId;
  static constexpr std::uint64_t maxSemaphores = std::uint64_t{1} << Trigger::bitsSemaphoreId;

  std::size_t fifos_;
  std::shared_ptr<TraceTrack> trace_;
  detail::AppendOnlyTable<Port> ports_;
  detail::AppendOnlyTable<RegisteredMemory> memories_;
  // Used by the thread only:
  std::vector<Flush> flushes_;
  std::vector<Connection> batches_;
};

template <PortTriggerLayout Trigger>
BasicProxyService<Trigger>::BasicProxyService(int fifoSize)
    : BasicProxyService(ProxyServiceOptions{.fifoSize = fifoSize}) {}

template <PortTriggerLayout Trigger>
BasicProxyService<Trigger>::BasicProxyService(const ProxyServiceOptions& options)
    : stopTimeout_(options.thread.stopTimeout),
      state_(std::make_shared<State>(options)),
      proxy_(std::make_shared<ProxyType>(
          [state = state_](const Trigger& trigger, TriggerPosition from) { state->handle(trigger, from); },
          ProxyOptions{.thread = options.thread,
                       .fifos = options.fifos,
                       .fifoSize = options.fifoSize,
                       .popsPerTailUpdate = std::min(options.popsPerTailUpdate, options.fifoSize),
                       .progress = [state = state_] { return state->progress(); }})) {}

template <PortTriggerLayout Trigger>
BasicProxyService<Trigger>::~BasicProxyService() {
  proxy_->shutdown();  // channels may keep the proxy alive
}

template <PortTriggerLayout Trigger>
SemaphoreId BasicProxyService<Trigger>::buildAndAddSemaphore(Communicator& communicator, const Connection& connection) {
  return addSemaphore(detail::buildSemaphore(communicator, connection));
}
template <PortTriggerLayout Trigger>
SemaphoreId BasicProxyService<Trigger>::addSemaphore(const Semaphore& semaphore) {
  return addSemaphore(std::make_shared<Host2DeviceSemaphore>(semaphore));
}
template <PortTriggerLayout Trigger>
SemaphoreId BasicProxyService<Trigger>::addSemaphore(std::shared_ptr<Host2DeviceSemaphore> semaphore) {
  return state_->add(std::move(semaphore));
}
template <PortTriggerLayout Trigger>
MemoryId BasicProxyService<Trigger>::addMemory(RegisteredMemory memory) {
  return state_->add(std::move(memory));
}
template <PortTriggerLayout Trigger>
MemoryId BasicProxyService<Trigger>::nextMemoryId(std::uint32_t count) const {
  return state_->nextMemory(count);
}

template <PortTriggerLayout Trigger>
std::shared_ptr<Host2DeviceSemaphore> BasicProxyService<Trigger>::semaphore(SemaphoreId id) const {
  return state_->port(id).semaphore;
}
template <PortTriggerLayout Trigger>
BasicBasePortChannel<Trigger> BasicProxyService<Trigger>::basePortChannel(SemaphoreId id) const {
  const auto& port = state_->port(id);
  const int fifo = static_cast<int>(id % static_cast<SemaphoreId>(proxy_->fifos()));
  return {id, port.semaphore, proxy_, fifo, port.flushWord(fifo)};
}
template <PortTriggerLayout Trigger>
BasicPortChannel<Trigger> BasicProxyService<Trigger>::portChannel(SemaphoreId id, MemoryId dst, MemoryId src) const {
  return {basePortChannel(id), dst, src, state_->readableSource(state_->port(id), dst, src)};
}

template <PortTriggerLayout Trigger>
void BasicProxyService<Trigger>::startProxy(bool blocking) {
  proxy_->start(blocking);
}
template <PortTriggerLayout Trigger>
void BasicProxyService<Trigger>::stopProxy() {
  proxy_->stop();
  if (!proxy_->running()) state_->flushConnections(stopTimeout_);
}
template <PortTriggerLayout Trigger>
void BasicProxyService<Trigger>::check() const {
  proxy_->check();
}

template class BasicProxyService<ProxyTrigger>;
template class BasicProxyService<WideTrigger>;

}  // namespace mscclpp
