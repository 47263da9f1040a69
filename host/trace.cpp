#include "mscclpp/host/trace.hpp"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include "device_memory.hpp"
#include "gpu_backend.hpp"
#include "mscclpp/arch/clock.hpp"
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/sync/trigger.hpp"
#include "trace_state.hpp"

namespace mscclpp {

namespace {

using detail::ClockComparison;
using detail::ClockMap;
using detail::TimedEvent;
using detail::TraceNames;
using detail::TrackEvents;

std::int64_t now() {
  return static_cast<std::int64_t>(arch::nanoseconds());
}

std::string nameOfRequest(int type) {
  std::string text;
  const auto add = [&](TriggerType bit, const char* name) {
    if ((static_cast<TriggerType>(type) & bit) != 0) text += (text.empty() ? "" : " + ") + std::string(name);
  };
  add(TriggerData, "put");
  add(TriggerValue, "put of a value");
  add(TriggerFlag, "signal");
  add(TriggerSync, "flush");
  return text.empty() ? "bad request" : text;
}

std::map<TraceId, TraceNames> namesOfLibrary() {
  std::map<TraceId, TraceNames> names{
      {TraceId::AllReduce, {"all_reduce", "bytes", ""}}, {TraceId::Push, {"push", "step", ""}},
      {TraceId::Reduce, {"reduce", "step", ""}},         {TraceId::Collect, {"collect", "step", ""}},
      {TraceId::Publish, {"publish", "step", ""}},       {TraceId::Wait, {"wait", "peer", ""}},
      {TraceId::Trigger, {"trigger", "position", ""}},   {TraceId::Asleep, {"asleep", "", ""}},
      {TraceId::Flushed, {"flushed", "semaphore", ""}},
  };
  for (int type = 0; type < 16; ++type) {
    const auto id = static_cast<TraceId>(static_cast<int>(TraceId::Request) + type);
    names.emplace(id, TraceNames{nameOfRequest(type), "bytes", "semaphore"});
  }
  return names;
}

// Tracks of blocks are numbered from 0, those of threads from here.
constexpr int firstThread = 1'000'000;
constexpr int maxBlocks = firstThread / traceRecordersPerBlock - 1;  // one number for the blocks beyond
constexpr std::size_t maxEventBytes = std::size_t{1} << 40;

// Pages that nobody writes cost nothing.
std::shared_ptr<void> allocateZeros(std::size_t bytes) {
  void* memory = std::calloc(1, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return {memory, [](void* m) { std::free(m); }};
}

/// Asks once, and waits for the answer.
ClockComparison ask(ClockExchange& exchange, std::uint64_t question) {
  using namespace std::chrono_literals;
  const auto deadline = std::chrono::steady_clock::now() + 5s;
  const std::int64_t before = now();
  arch::store<arch::Order::Release, arch::Scope::System>(&exchange.asked, question);
  while (arch::load<arch::Order::Acquire, arch::Scope::System>(&exchange.answered) != question) {
    if (std::chrono::steady_clock::now() > deadline) {
      throw Error(
          "Trace: the GPU does not tell its time; make and collect traces while no kernel occupies the whole GPU",
          ErrorCode::Timeout);
    }
  }
  const std::int64_t after = now();
  return {static_cast<std::int64_t>(exchange.nanoseconds), before + (after - before) / 2, (after - before + 1) / 2};
}

}  // namespace

namespace detail {

void appendLaunches(const std::vector<TraceEvent>& events, const ClockMap& clock, std::vector<TimedEvent>& to) {
  const std::int64_t around = clock.last() != 0 ? clock.last() : now();
  for (std::size_t first = 0; first < events.size();) {
    std::size_t last = first;
    while (last + 1 < events.size() && events[last].kind() != TraceKind::Close) ++last;
    const TraceEvent& open = events[first];
    const TraceEvent& close = events[last];
    const std::int64_t start = wholeTime(open.argument(), around);
    const std::int64_t end = wholeTime(close.argument(), around);
    const auto cycles = static_cast<double>(close.time - open.time);
    const double nanosecondsPerCycle = cycles > 0 ? static_cast<double>(end - start) / cycles : 0;
    const auto timeOf = [&](const TraceEvent& event) {
      const auto passed = static_cast<double>(static_cast<std::int64_t>(event.time - open.time));
      return clock.map(start + static_cast<std::int64_t>(passed * nanosecondsPerCycle));
    };
    std::vector<TraceId> spans;
    for (std::size_t i = first; i <= last; ++i) {
      const TraceEvent& event = events[i];
      const TraceKind kind = event.kind();
      if (kind == TraceKind::Open || kind == TraceKind::Close) continue;
      if (kind == TraceKind::Begin) spans.push_back(event.id());
      if (kind == TraceKind::End && !spans.empty()) spans.pop_back();
      to.push_back({timeOf(event), kind, event.id(), event.argument()});
    }
    for (; !spans.empty(); spans.pop_back())
      to.push_back({clock.map(end), TraceKind::End, spans.back(), noTraceArgument});
    first = last + 1;
  }
}

}  // namespace detail

TraceTrack::TraceTrack(std::unique_ptr<State> state) : state_(std::move(state)) {}
TraceTrack::~TraceTrack() = default;

void TraceTrack::begin(TraceId id, std::uint64_t argument) {
  state_->record(TraceKind::Begin, id, argument);
}
void TraceTrack::end(TraceId id, std::uint64_t argument) {
  state_->record(TraceKind::End, id, argument);
}
void TraceTrack::point(TraceId id, std::uint64_t argument) {
  state_->record(TraceKind::Point, id, argument);
}

void TraceTrack::State::record(TraceKind kind, TraceId id, std::uint64_t argument) {
  const std::int64_t time = now();
  const std::lock_guard lock(mutex);
  const std::size_t room = capacity - std::min(capacity, track.events.size() + depth);
  switch (kind) {
    case TraceKind::Begin:
      if (room < 2) {
        ++skipped;
        ++track.lost;
        return;
      }
      ++depth;
      break;
    case TraceKind::End:
      if (skipped > 0 || depth == 0) {
        if (skipped > 0) --skipped;
        ++track.lost;
        return;
      }
      --depth;
      break;
    default:
      if (room < 1) {
        ++track.lost;
        return;
      }
  }
  track.events.push_back({time, kind, id, argument & noTraceArgument});
}

TrackEvents TraceTrack::State::snapshot() {
  const std::lock_guard lock(mutex);
  return track;
}

Trace::State::State(TraceOptions options) : options_(std::move(options)), names_(namesOfLibrary()) {
  if (options_.blocks < 1 || options_.eventsPerRecorder < 2) {
    throw Error("Trace: it needs room for 1 block and 2 events at least", ErrorCode::InvalidUsage);
  }
  if (options_.device.type == DeviceType::Unknown) {
    throw Error("Trace: the device must be a CPU or a GPU", ErrorCode::InvalidUsage);
  }
  if (options_.blocks > maxBlocks) {
    throw Error("Trace: at most " + std::to_string(maxBlocks) + " blocks can record", ErrorCode::InvalidUsage);
  }
  const std::size_t arrays = static_cast<std::size_t>(options_.blocks) * traceRecordersPerBlock;
  // Blocks are few enough for the product to fit.
  const std::size_t eventBytes = arrays * static_cast<std::size_t>(options_.eventsPerRecorder) * sizeof(TraceEvent);
  if (eventBytes > maxEventBytes) {
    throw Error("Trace: room for that many events takes " + std::to_string(eventBytes) + " bytes, more than 1 TiB",
                ErrorCode::InvalidUsage);
  }
  const std::size_t cursorBytes = (arrays + 1) * sizeof(TraceCursor);
  if (onGpu()) {
    if (!options_.answerClock) {
      throw Error(
          "Trace: a GPU's clock is asked by a kernel: give TraceOptions::answerClock, which is answerClockOnGpu of "
          "mscclpp/trace_clock.cuh, or make the trace by Collectives::makeTrace",
          ErrorCode::InvalidUsage);
    }
    if (options_.device.id < 0) options_.device.id = detail::currentGpu();
    events_ = detail::allocatePrivateGpuMemory(options_.device.id, eventBytes);
    cursors_ = detail::allocatePrivateGpuMemory(options_.device.id, cursorBytes);
    exchange_ = detail::allocateGpuVisibleHostMemory(sizeof(ClockExchange));
  } else {
    events_ = allocateZeros(eventBytes);
    cursors_ = allocateZeros(cursorBytes);
  }
  buffer_ = {static_cast<TraceEvent*>(events_.get()), static_cast<TraceCursor*>(cursors_.get()),
             static_cast<std::uint32_t>(options_.blocks), static_cast<std::uint32_t>(options_.eventsPerRecorder)};
  compareClocks();
}

std::shared_ptr<TraceTrack> Trace::State::track(const std::string& name) {
  const std::lock_guard lock(mutex_);
  for (const auto& each : threads_) {
    if (each->state_->track.name == name) return each;
  }
  threads_.push_back(
      std::shared_ptr<TraceTrack>(new TraceTrack(std::make_unique<TraceTrack::State>(name, options_.eventsPerThread))));
  return threads_.back();
}

void Trace::State::name(TraceId id, TraceNames names) {
  const std::lock_guard lock(mutex_);
  names_[id] = std::move(names);
}

TraceNames Trace::State::namesOf(TraceId id) const {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(id);
  if (found != names_.end()) return found->second;
  return {"event " + std::to_string(static_cast<int>(id)), "value", "result"};
}

void Trace::State::read(void* to, const void* from, std::size_t bytes) const {
  if (onGpu()) {
    detail::readGpuMemory(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

void Trace::State::compareClocks() {
  if (!onGpu()) return;
  auto* exchange = new (exchange_.get()) ClockExchange{};
  options_.answerClock(exchange);
  // The answer that took the shortest time is the most accurate one. The first has to wait for the kernel to start.
  ClockComparison best = ask(*exchange, 1);
  for (std::uint64_t question = 2; question <= ClockExchange::questions; ++question) {
    const ClockComparison next = ask(*exchange, question);
    if (next.error < best.error) best = next;
  }
  const std::lock_guard lock(mutex_);
  clock_.add(best);
}

void Trace::State::collect() {
  compareClocks();
  const std::lock_guard lock(mutex_);
  const std::size_t arrays = static_cast<std::size_t>(options_.blocks) * traceRecordersPerBlock;
  std::vector<TraceCursor> cursors(arrays + 1);
  read(cursors.data(), cursors_.get(), cursors.size() * sizeof(TraceCursor));
  for (std::size_t array = 0; array <= arrays; ++array) {
    const TraceCursor& cursor = cursors[array];
    if (cursor.count == 0 && cursor.lost == 0) continue;
    const std::size_t block = array / traceRecordersPerBlock;
    TrackEvents& track = blocks_[static_cast<int>(array)];
    if (array == arrays) {
      track.name = "blocks " + std::to_string(block) + " and up";
    } else {
      track.name = "block " + std::to_string(block) + (array % traceRecordersPerBlock == 0 ? "" : ", last warp");
    }
    track.lost += cursor.lost;
    std::vector<TraceEvent> events(cursor.count);
    const auto capacity = static_cast<std::size_t>(options_.eventsPerRecorder);
    read(events.data(), buffer_.events + array * capacity, events.size() * sizeof(TraceEvent));
    detail::appendLaunches(events, clock_, track.events);
  }
  detail::zeroMemory(options_.device, cursors_.get(), cursors.size() * sizeof(TraceCursor));
}

std::map<int, TrackEvents> Trace::State::tracks() const {
  const std::lock_guard lock(mutex_);
  std::map<int, TrackEvents> all = blocks_;
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    all.emplace(firstThread + static_cast<int>(i), threads_[i]->state_->snapshot());
  }
  return all;
}

std::uint64_t Trace::State::lost() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [number, track] : blocks_) sum += track.lost;
  for (const auto& thread : threads_) {
    TraceTrack::State& state = *thread->state_;
    const std::lock_guard threadLock(state.mutex);
    sum += state.track.lost;
  }
  return sum;
}

std::uint64_t Trace::State::clockError() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::uint64_t>(clock_.error());
}

Trace::Trace(TraceOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Trace::~Trace() = default;

TraceBuffer Trace::buffer() const noexcept {
  return state_->buffer();
}
std::shared_ptr<TraceTrack> Trace::track(const std::string& name) {
  return state_->track(name);
}
void Trace::name(TraceId id, std::string name, std::string argument, std::string endArgument) {
  state_->name(id, {std::move(name), std::move(argument), std::move(endArgument)});
}
void Trace::collect() {
  state_->collect();
}
std::uint64_t Trace::lost() const {
  return state_->lost();
}
std::uint64_t Trace::clockError() const {
  return state_->clockError();
}

}  // namespace mscclpp
