// Reads a trace file, and checks what holds for every trace: spans nest, time is monotonic, each track has a name.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace mscclpp::test {

using Json = nlohmann::json;

/// A file that is removed at the end of the test.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / ("mscclpp_" + std::to_string(::getpid()) + "_" + name)) {}
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  std::string path() const { return path_.string(); }
  Json read() const { return Json::parse(std::ifstream(path_)); }

 private:
  std::filesystem::path path_;
};

using TrackKey = std::pair<int, int>;  // process, thread

struct ReadTrack {
  std::string name;
  std::vector<Json> events;
};

/// The tracks of a file by process and thread. Checks that every span ends, inside its parent, and that time is
/// monotonic.
inline std::map<TrackKey, ReadTrack> tracksOf(const Json& file) {
  std::map<TrackKey, ReadTrack> tracks;
  for (const Json& event : file.at("traceEvents")) {
    const TrackKey key{event.at("pid"), event.at("tid")};
    if (event.at("ph") == "M") {
      if (event.at("name") == "thread_name") tracks[key].name = event.at("args").at("name");
      continue;
    }
    if (!tracks.contains(key)) FAIL("a track without a name: " << event);
    tracks[key].events.push_back(event);
  }
  for (const auto& [key, track] : tracks) {
    std::vector<std::string> open;
    double last = 0;
    for (const Json& event : track.events) {
      // One assertion per event would take most of a test's time.
      const bool goesOn = event.at("ts").get<double>() >= last;
      if (!goesOn) FAIL_CHECK("time goes back: " << event);
      last = event.at("ts");
      if (event.at("ph") == "B") open.push_back(event.at("name"));
      if (event.at("ph") == "E") {
        const bool fits = !open.empty() && open.back() == event.at("name").get<std::string>();
        if (!fits) FAIL("ends what is not the innermost span: " << event);
        open.pop_back();
      }
    }
    CHECK(open.empty());
  }
  return tracks;
}

inline std::string phasesOf(const ReadTrack& track) {
  std::string phases;
  for (const Json& event : track.events) phases += event.at("ph").get<std::string>();
  return phases;
}

/// A span as it was recorded, in microseconds.
struct ReadSpan {
  std::string name;
  double begin;
  double end;
  Json args;
};

/// The spans with that name, in the order of their start times; they do not nest in each other.
inline std::vector<ReadSpan> spansOf(const ReadTrack& track, const std::string& name) {
  std::vector<ReadSpan> spans;
  for (const Json& event : track.events) {
    if (event.at("name") != name) continue;
    if (event.at("ph") == "B") spans.push_back({name, event.at("ts"), 0, event.value("args", Json{})});
    if (event.at("ph") == "E") spans.back().end = event.at("ts");
  }
  return spans;
}

}  // namespace mscclpp::test
