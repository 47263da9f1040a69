#include "mscclpp/host/trace/trace.hpp"

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "host/cuda/gpu_backend.hpp"
#include "host/memory/device_memory.hpp"
#include "host/trace/trace_state.hpp"
#include "mscclpp/arch/clock.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp {

namespace {

using detail::ClockMap;
using detail::TraceNames;
using detail::TrackEvents;

// Tracks of blocks are numbered from 0, those of threads from here.
constexpr int firstThread = 1'000'000;
constexpr int maxTracedBlocks = firstThread / traceRecordersPerBlock - 1;  // blocks beyond share one number
constexpr std::size_t maxEventBytes = std::size_t{1} << 40;

// Pages that are never written take no memory.
std::shared_ptr<void> allocateZeros(std::size_t bytes) {
  void* memory = std::calloc(1, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return {memory, [](void* m) { std::free(m); }};
}

}  // namespace

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
  const auto time = static_cast<std::int64_t>(arch::nanoseconds());
  const std::lock_guard lock(mutex_);
  const bool fits = kind == TraceKind::Begin ? free_.begin() : kind == TraceKind::End ? free_.end() : free_.point();
  if (fits) events_.push_back({time, kind, id, argument & noTraceArgument});
}

void TraceTrack::State::collect() {
  const std::lock_guard lock(mutex_);
  free_.refill(capacity_);
}

TrackEvents TraceTrack::State::snapshot() const {
  const std::lock_guard lock(mutex_);
  return {name_, events_, free_.dropped()};
}

std::uint64_t TraceTrack::State::lost() const {
  const std::lock_guard lock(mutex_);
  return free_.dropped();
}

Trace::State::State(TraceOptions options) : options_(std::move(options)), names_(detail::traceNamesOfLibrary()) {
  if (options_.blocks < 1 || options_.eventsPerRecorder < 2) {
    throw Error("Trace: blocks must be at least 1 and eventsPerRecorder at least 2", ErrorCode::InvalidUsage);
  }
  if (options_.device.type == DeviceType::Unknown) {
    throw Error("Trace: the device must be a CPU or a GPU", ErrorCode::InvalidUsage);
  }
  if (options_.blocks > maxTracedBlocks) {
    throw Error("Trace: at most " + std::to_string(maxTracedBlocks) + " blocks can record", ErrorCode::InvalidUsage);
  }
  const std::size_t arrays = static_cast<std::size_t>(options_.blocks) * traceRecordersPerBlock;
  // The number of blocks is limited, so the product does not overflow.
  const std::size_t eventBytes = arrays * static_cast<std::size_t>(options_.eventsPerRecorder) * sizeof(TraceEvent);
  if (eventBytes > maxEventBytes) {
    throw Error("Trace: a buffer for that many events takes " + std::to_string(eventBytes) + " bytes, more than 1 TiB",
                ErrorCode::InvalidUsage);
  }
  const std::size_t cursorBytes = (arrays + 1) * sizeof(TraceCursor);
  if (onGpu()) {
    if (!options_.launchClockSync) {
      throw Error(
          "Trace: a kernel reads the GPU's clock: set TraceOptions::launchClockSync to launchClockSyncOnGpu of "
          "mscclpp/clock_sync.cuh, or make the trace by Collectives::makeTrace",
          ErrorCode::InvalidUsage);
    }
    if (options_.device.id < 0) options_.device.id = detail::currentGpu();
    events_ = detail::allocatePrivateGpuMemory(options_.device.id, eventBytes);
    cursors_ = detail::allocatePrivateGpuMemory(options_.device.id, cursorBytes);
    clock_.emplace(detail::allocateGpuVisibleHostMemory(sizeof(ClockSync)), options_.launchClockSync);
  } else {
    events_ = allocateZeros(eventBytes);
    cursors_ = allocateZeros(cursorBytes);
    clock_.emplace();
  }
  buffer_ = {static_cast<TraceEvent*>(events_.get()), static_cast<TraceCursor*>(cursors_.get()),
             static_cast<std::uint32_t>(options_.blocks), static_cast<std::uint32_t>(options_.eventsPerRecorder)};
  clock_->compare();
}

std::shared_ptr<TraceTrack> Trace::State::track(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return trackWithLock(name);
}

std::shared_ptr<TraceTrack> Trace::State::trackOfThisThread(const std::string& name) {
  const std::lock_guard lock(mutex_);
  auto& tracks = tracksOfThreads_[name];
  auto& track = tracks[std::this_thread::get_id()];
  if (!track) track = trackWithLock(tracks.size() == 1 ? name : name + " " + std::to_string(tracks.size()));
  return track;
}

std::shared_ptr<TraceTrack> Trace::State::trackWithLock(const std::string& name) {
  for (const auto& each : threads_) {
    if (each->state_->name() == name) return each;
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

void Trace::State::collect() {
  clock_->compare();
  const std::lock_guard lock(mutex_);
  for (const auto& thread : threads_) thread->state_->collect();
  const ClockMap clock = clock_->map();
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
    detail::appendLaunchEvents(events, clock, track.events);
  }
  detail::fillMemory(options_.device, cursors_.get(), 0, cursors.size() * sizeof(TraceCursor));
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
  for (const auto& thread : threads_) sum += thread->state_->lost();
  return sum;
}

std::uint64_t Trace::State::clockError() const {
  return static_cast<std::uint64_t>(clock_->map().error());
}

Trace::Trace(TraceOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Trace::~Trace() = default;

TraceBuffer Trace::buffer() const noexcept {
  return state_->buffer();
}
std::shared_ptr<TraceTrack> Trace::track(const std::string& name) {
  return state_->track(name);
}
std::shared_ptr<TraceTrack> Trace::trackOfThisThread(const std::string& name) {
  return state_->trackOfThisThread(name);
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
