// Traces as files: Chrome's JSON, a rank a process, a track a thread, piece by piece.
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string_view>
#include <system_error>

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

/// A file that grows event by event, beside the one whose place it takes when it is whole. What is not a plain file, such
/// as a pipe, is written where it is.
class TraceFile {
 public:
  explicit TraceFile(const std::string& path) : path_(path), target_(path) {
    std::error_code ignored;
    // Through links: it is the file behind them that is replaced.
    if (std::filesystem::exists(path, ignored)) target_ = std::filesystem::canonical(path);
    written_ = target_;
    if (!std::filesystem::exists(target_, ignored) || std::filesystem::is_regular_file(target_)) written_ += ".part";
    out_.open(written_);
    if (!out_) throw SysError("cannot write the trace " + path_, errno);
    isOpen_ = true;
    out_ << "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [";
  }
  ~TraceFile() {
    std::error_code ignored;
    if (isOpen_ && written_ != target_) std::filesystem::remove(written_, ignored);
  }
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  void add(const Piece& events) {
    out_ << (isEmpty_ ? "\n" : ",\n");
    out_.write(events.data(), static_cast<std::streamsize>(events.size()));
    check();
    isEmpty_ = false;
  }
  /// `summaries`: what is to be known of each rank.
  void close(const Json& summaries) {
    out_ << "\n],\n\"otherData\": " << Json{{"clock", "CLOCK_MONOTONIC"}, {"ranks", summaries}}.dump() << "}\n";
    out_.close();
    check();
    std::error_code failure;
    if (written_ != target_) std::filesystem::rename(written_, target_, failure);
    if (failure) throw SysError("the trace " + path_ + " could not be put in its place", failure.value());
    isOpen_ = false;
  }

 private:
  void check() const {
    if (!out_) throw SysError("the trace " + path_ + " could not be written", errno);
  }

  std::string path_;
  std::filesystem::path target_;
  std::filesystem::path written_;
  std::ofstream out_;
  bool isOpen_ = false;
  bool isEmpty_ = true;
};

}  // namespace

class TraceWriter {
 public:
  explicit TraceWriter(Trace& trace) : state_(*trace.state_) { state_.collect(); }

  static int rankOf(const Trace& trace) { return trace.state_->rank(); }

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

// How the events come to rank 0: it asks one peer after another for the next piece, so that no peer is more than a piece
// ahead of the file, and says at each question to all others that they go on waiting. No rank knows the timeout of its
// bootstrap, so the others hear something for every piece; and they wait twice, since rank 0 may wait for a piece once.
enum class Word : char {
  Wait,     ///< rank 0 to a peer
  Next,     ///< rank 0 to a peer, which answers by one of the three below
  Over,     ///< rank 0 to a peer, with a complaint if there is one
  Events,   ///< with events; there may be more
  Summary,  ///< with the summary, after the last events
  Failed,   ///< with a complaint
};

void say(Bootstrap& bootstrap, int to, Word word) {
  bootstrap.send(&word, sizeof(word), to, Bootstrap::TraceTag);
}

void say(Bootstrap& bootstrap, int to, Word word, const Piece& content) {
  say(bootstrap, to, word);
  bootstrap.send(content, to, Bootstrap::TraceTag);
}

Word hear(Bootstrap& bootstrap, int from) {
  Word word{};
  bootstrap.recv(&word, sizeof(word), from, Bootstrap::TraceTag);
  return word;
}

Word hearTwice(Bootstrap& bootstrap, int from) {
  try {
    return hear(bootstrap, from);
  } catch (const Error& error) {
    if (error.getErrorCode() != ErrorCode::Timeout) throw;
  }
  return hear(bootstrap, from);
}

Piece hearContent(Bootstrap& bootstrap, int from) {
  Piece content;
  bootstrap.recv(content, from, Bootstrap::TraceTag);
  return content;
}

Piece pieceOf(const std::string& text) {
  return {text.begin(), text.end()};
}
std::string textOf(const Piece& piece) {
  return {piece.begin(), piece.end()};
}

/// A peer's wait for a question or for the end. Throws if rank 0 gives up.
void await(Bootstrap& bootstrap, Word expected) {
  Word word = Word::Wait;
  while (word == Word::Wait) word = hearTwice(bootstrap, 0);
  if (word == Word::Over) {
    const std::string complaint = textOf(hearContent(bootstrap, 0));
    if (!complaint.empty()) {
      throw Error("rank 0 could not write the trace: " + complaint, ErrorCode::RemoteError);
    }
  }
  if (word != expected) throw Error("writeTrace: rank 0 is out of step", ErrorCode::InternalError);
}

/// A peer's part. What it throws itself, rank 0 and by it all ranks get to know.
void supply(const TraceWriter& writer, Bootstrap& bootstrap) {
  bool isTalking = false;
  const auto answer = [&](Word word, const Piece& content) {
    isTalking = true;
    await(bootstrap, Word::Next);
    say(bootstrap, 0, word, content);
    isTalking = false;
  };
  try {
    writer.events([&](const Piece& events) { answer(Word::Events, events); });
    answer(Word::Summary, pieceOf(writer.summary().dump()));
  } catch (const std::exception& error) {
    if (isTalking) throw;
    answer(Word::Failed, pieceOf(error.what()));
    complaintOf([&] { await(bootstrap, Word::Over); });
    throw;
  }
  await(bootstrap, Word::Over);
}

/// Rank 0's part, up to the whole file.
void gather(TraceFile& file, const TraceWriter& writer, Bootstrap& bootstrap) {
  constexpr int nobody = 0;
  const auto ask = [&](int asked) {
    for (int peer = 1; peer < bootstrap.getNranks(); ++peer) {
      say(bootstrap, peer, peer == asked ? Word::Next : Word::Wait);
    }
  };
  writer.events([&](const Piece& events) {
    file.add(events);
    ask(nobody);
  });
  Json summaries = Json::array({writer.summary()});
  for (int peer = 1; peer < bootstrap.getNranks(); ++peer) {
    for (Word word = Word::Events; word == Word::Events;) {
      ask(peer);
      word = hear(bootstrap, peer);
      const Piece content = hearContent(bootstrap, peer);
      if (word == Word::Failed) {
        throw Error("rank " + std::to_string(peer) + " failed: " + textOf(content), ErrorCode::RemoteError);
      }
      if (word == Word::Events) {
        file.add(content);
      } else {
        summaries.push_back(Json::parse(content.begin(), content.end()));
      }
    }
  }
  file.close(summaries);
}

/// Tells every peer that it may go, also when another one is out of reach. Returns the first failure.
std::exception_ptr dismiss(Bootstrap& bootstrap, const std::string& complaint) {
  std::exception_ptr first;
  for (int peer = 1; peer < bootstrap.getNranks(); ++peer) {
    try {
      say(bootstrap, peer, Word::Over, pieceOf(complaint));
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  return first;
}

}  // namespace

void writeTrace(const std::string& path, const std::vector<Trace*>& traces) {
  std::set<int> ranks;
  for (const Trace* trace : traces) {
    if (trace == nullptr) throw Error("writeTrace: a trace is null", ErrorCode::InvalidUsage);
    const int rank = TraceWriter::rankOf(*trace);
    if (!ranks.insert(rank).second) {
      throw Error("writeTrace: two traces are of rank " + std::to_string(rank) +
                      ", and would be one process of the file; set TraceOptions::rank",
                  ErrorCode::InvalidUsage);
    }
  }
  TraceFile file(path);
  Json summaries = Json::array();
  for (Trace* trace : traces) {
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
  if (!writes) return supply(*writer, bootstrap);
  try {
    gather(*file, *writer, bootstrap);
  } catch (const std::exception& error) {
    dismiss(bootstrap, error.what());  // who is out of reach has failed anyway
    throw;
  }
  if (const std::exception_ptr failure = dismiss(bootstrap, {})) std::rethrow_exception(failure);
}

}  // namespace mscclpp
