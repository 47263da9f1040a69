// The file of a trace, written next to the one that it replaces.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "host/trace/trace_json.hpp"

namespace mscclpp::detail {

/// A file in Chrome's JSON format that is written chunk by chunk as `path`.part, and renamed to `path` when it is
/// complete: until then an older file stays as it is, and on failure the .part file is removed. A path that is not a
/// regular file, such as a pipe, is written directly. Every function throws SysError.
class TraceFile {
 public:
  explicit TraceFile(const std::string& path);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  /// Events separated by commas, at least one.
  void add(const JsonChunk& events);
  /// `summaries`: a JSON object for each rank.
  void close(const std::vector<std::string>& summaries);

 private:
  void check() const;

  std::string path_;
  std::filesystem::path target_;
  std::filesystem::path written_;
  std::ofstream out_;
  bool isOpen_ = false;
  bool isEmpty_ = true;
};

}  // namespace mscclpp::detail
