// Traces as files: Chrome's JSON, a rank a process, a track a thread, piece by piece.
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>

#include "mscclpp/host/error.hpp"
#include "trace_state.hpp"

namespace mscclpp {

namespace {

using detail::TimedEvent;
using detail::TraceNames;
using detail::TrackEvents;
using Json = nlohmann::ordered_json;
using Piece = std::vector<char>;

constexpr std::size_t pieceBytes = std::size_t{1} << 20;
constexpr int tag = 32766;  // of the bootstrap's messages, one below the last

/// Microseconds, which Chrome's format wants; a double holds nanoseconds for a hundred days.
double microseconds(std::int64_t time) {
  return static_cast<double>(time) / 1000;
}

/// Events of one rank as text, separated by commas, in pieces.
class EventText {
 public:
  explicit EventText(const std::function<void(const Piece&)>& take) : take_(take) {}

  void add(const Json& event) {
    if (!piece_.empty()) append(",\n");
    append(event.dump(-1, ' ', false, Json::error_handler_t::replace));
    if (piece_.size() >= pieceBytes) flush();
  }
  void flush() {
    if (!piece_.empty()) take_(piece_);
    piece_.clear();
  }

 private:
  void append(std::string_view text) { piece_.insert(piece_.end(), text.begin(), text.end()); }

  const std::function<void(const Piece&)>& take_;
  Piece piece_;
};

/// A file that grows event by event.
class TraceFile {
 public:
  explicit TraceFile(const std::string& path) : path_(path), out_(path) {
    if (!out_) throw SysError("cannot write the trace " + path_, errno);
    out_ << "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [";
  }
  void add(const Piece& events) {
    out_ << (isEmpty_ ? "\n" : ",\n");
    out_.write(events.data(), static_cast<std::streamsize>(events.size()));
    isEmpty_ = false;
  }
  /// `summaries`: what is to be known of each rank.
  void close(const Json& summaries) {
    out_ << "\n],\n\"otherData\": " << Json{{"clock", "CLOCK_MONOTONIC"}, {"ranks", summaries}}.dump() << "}\n";
    out_.close();
    if (!out_) throw SysError("the trace " + path_ + " could not be written", errno);
  }

 private:
  std::string path_;
  std::ofstream out_;
  bool isEmpty_ = true;
};

}  // namespace

class TraceWriter {
 public:
  explicit TraceWriter(Trace& trace) : state_(*trace.state_) { state_.collect(); }

  void events(const std::function<void(const Piece&)>& take) const {
    EventText text(take);
    const int rank = state_.rank();
    const auto describe = [&](const char* what, int track, const Json& args) {
      text.add({{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", track}, {"args", args}});
    };
    describe("process_name", 0, {{"name", "rank " + std::to_string(rank) + " (" + nameOf(state_.device()) + ")"}});
    describe("process_sort_index", 0, {{"sort_index", rank}});
    for (const auto& [number, track] : state_.tracks()) {
      describe("thread_name", number, {{"name", track.name}});
      describe("thread_sort_index", number, {{"sort_index", number}});
      this->track(text, number, track);
    }
    text.flush();
  }

  Json summary() const {
    return {{"rank", state_.rank()},
            {"device", nameOf(state_.device())},
            {"clockErrorNanoseconds", state_.clockError()},
            {"lostEvents", state_.lost()}};
  }

 private:
  void track(EventText& text, int number, const TrackEvents& track) const {
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
      text.add(json);
      if (each.kind == TraceKind::Begin) open.push_back(&names);
      if (isEnd && !open.empty()) open.pop_back();
      last = each.time;
    }
    // A thread of the host may be in the middle of something.
    for (; !open.empty(); open.pop_back()) {
      Json json = event("E", last);
      json["name"] = open.back()->event;
      json["args"] = {{"unfinished", true}};
      text.add(json);
    }
    if (track.lost > 0) {
      Json json = event("i", last);
      json["name"] = "lost events";
      json["s"] = "t";
      json["args"] = {{"count", track.lost}};
      text.add(json);
    }
  }

  Trace::State& state_;
};

namespace {

/// Throws on every rank if something was thrown on one: a rank alone in a collective call would wait in vain.
void agree(Bootstrap& bootstrap, const std::string& complaint) {
  const auto ranks = static_cast<std::size_t>(bootstrap.getNranks());
  const auto rank = static_cast<std::size_t>(bootstrap.getRank());
  std::vector<std::uint8_t> failures(ranks, 0);
  failures[rank] = complaint.empty() ? 0 : 1;
  bootstrap.allGather(failures.data(), 1);
  if (!complaint.empty()) throw Error(complaint, ErrorCode::SystemError);
  for (std::size_t r = 0; r < ranks; ++r) {
    if (failures[r] != 0) {
      throw Error("rank " + std::to_string(r) + " could not write the trace", ErrorCode::RemoteError);
    }
  }
}

template <class F>
std::string complaintOf(const F& f) {
  try {
    f();
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

Json parsed(const Piece& text) {
  return Json::parse(text.begin(), text.end());
}

}  // namespace

void writeTrace(const std::string& path, const std::vector<Trace*>& traces) {
  TraceFile file(path);
  Json summaries = Json::array();
  for (Trace* trace : traces) {
    if (trace == nullptr) throw Error("writeTrace: a trace is null", ErrorCode::InvalidUsage);
    const TraceWriter writer(*trace);
    writer.events([&](const Piece& piece) { file.add(piece); });
    summaries.push_back(writer.summary());
  }
  file.close(summaries);
}

void writeTrace(const std::string& path, Trace& trace, Bootstrap& bootstrap) {
  if (bootstrap.getNranksPerNode() != bootstrap.getNranks()) {
    throw Error("writeTrace: the ranks of a trace are on one host, whose clock is theirs; write one file a host",
                ErrorCode::InvalidUsage);
  }
  const bool writes = bootstrap.getRank() == 0;
  std::unique_ptr<TraceFile> file;
  std::unique_ptr<TraceWriter> writer;
  agree(bootstrap, complaintOf([&] {
          writer = std::make_unique<TraceWriter>(trace);
          if (writes) file = std::make_unique<TraceFile>(path);
        }));
  if (!writes) {
    writer->events([&](const Piece& piece) { bootstrap.send(piece, 0, tag); });
    bootstrap.send(Piece{}, 0, tag);
    const std::string summary = writer->summary().dump();
    bootstrap.send(Piece(summary.begin(), summary.end()), 0, tag);
    return agree(bootstrap, {});
  }
  writer->events([&](const Piece& piece) { file->add(piece); });
  Json summaries = Json::array({writer->summary()});
  for (int peer = 1; peer < bootstrap.getNranks(); ++peer) {
    Piece piece;
    while (bootstrap.recv(piece, peer, tag), !piece.empty()) file->add(piece);
    bootstrap.recv(piece, peer, tag);
    summaries.push_back(parsed(piece));
  }
  agree(bootstrap, complaintOf([&] { file->close(summaries); }));
}

}  // namespace mscclpp
