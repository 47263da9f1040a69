#include "host/trace/trace_json.hpp"

#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "host/trace/trace_state.hpp"

namespace mscclpp::detail {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t chunkBytes = std::size_t{1} << 20;

/// The unit of Chrome's format; a double holds nanoseconds for a hundred days.
double microseconds(std::int64_t time) {
  return static_cast<double>(time) / 1000;
}

}  // namespace

/// Events of one rank as text, in chunks.
class TraceJson::EventWriter {
 public:
  explicit EventWriter(const std::function<void(const JsonChunk&)>& take) : take_(take) {}

  void add(const Json& event) {
    if (!chunk_.empty()) append(",\n");
    append(event.dump(-1, ' ', false, Json::error_handler_t::replace));
    if (chunk_.size() >= chunkBytes) flush();
  }
  void flush() {
    if (!chunk_.empty()) take_(chunk_);
    chunk_.clear();
  }

 private:
  void append(std::string_view text) { chunk_.insert(chunk_.end(), text.begin(), text.end()); }

  const std::function<void(const JsonChunk&)>& take_;
  JsonChunk chunk_;
};

TraceJson::TraceJson(Trace& trace) : state_(*trace.state_) {
  state_.collect();
}

int TraceJson::rankOf(const Trace& trace) {
  return trace.state_->rank();
}

void TraceJson::forEachChunk(const std::function<void(const JsonChunk&)>& take) const {
  EventWriter writer(take);
  const int rank = state_.rank();
  const auto describe = [&](const char* what, int track, const Json& args) {
    writer.add({{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", track}, {"args", args}});
  };
  describe("process_name", 0, {{"name", "rank " + std::to_string(rank) + " (" + nameOf(state_.device()) + ")"}});
  describe("process_sort_index", 0, {{"sort_index", rank}});
  for (const auto& [number, track] : state_.tracks()) {
    describe("thread_name", number, {{"name", track.name}});
    describe("thread_sort_index", number, {{"sort_index", number}});
    writeTrack(writer, number, track);
  }
  writer.flush();
}

std::string TraceJson::summary() const {
  return Json{{"rank", state_.rank()},
              {"device", nameOf(state_.device())},
              {"clockErrorNanoseconds", state_.clockError()},
              {"lostEvents", state_.lost()}}
      .dump();
}

void TraceJson::writeTrack(EventWriter& writer, int number, const TrackEvents& track) const {
  const int rank = state_.rank();
  std::map<TraceId, TraceNames> known;
  std::vector<const TraceNames*> open;
  std::int64_t last = 0;
  const auto event = [&](const char* phase, std::int64_t time) {
    return Json{{"ph", phase}, {"pid", rank}, {"tid", number}, {"ts", microseconds(time)}};
  };
  for (const TimedEvent& each : track.events) {
    auto found = known.find(each.id);
    if (found == known.end()) found = known.emplace(each.id, state_.namesOf(each.id)).first;
    const TraceNames& names = found->second;
    const bool isEnd = each.kind == TraceKind::End;
    Json json = event(each.kind == TraceKind::Begin ? "B" : isEnd ? "E" : "i", each.time);
    json["name"] = names.event;
    if (each.kind == TraceKind::Point) json["s"] = "t";
    const std::string& argument = isEnd ? names.endArgument : names.argument;
    if (each.argument != noTraceArgument && !argument.empty()) json["args"] = {{argument, each.argument}};
    writer.add(json);
    if (each.kind == TraceKind::Begin) open.push_back(&names);
    if (isEnd && !open.empty()) open.pop_back();
    last = each.time;
  }
  // From a host thread that is still recording.
  for (; !open.empty(); open.pop_back()) {
    Json json = event("E", last);
    json["name"] = open.back()->event;
    json["args"] = {{"unfinished", true}};
    writer.add(json);
  }
  if (track.lost > 0) {
    Json json = event("i", last);
    json["name"] = "lost events";
    json["s"] = "t";
    json["args"] = {{"count", track.lost}};
    writer.add(json);
  }
}

}  // namespace mscclpp::detail
