// Compiled programs as files of a folder that processes share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/base/deadline.hpp"
#include "host/base/unique_fd.hpp"

namespace mscclpp::jit::detail {

/// What is kept of a compilation.
struct CachedProgram {
  std::string image;
  std::string log;
  std::vector<std::string> loweredNames;
};

/// The right to compile a program; the lock file is removed with it. Empty where there can be none.
class CacheLock {
 public:
  CacheLock() = default;
  CacheLock(mscclpp::detail::UniqueFd file, std::filesystem::path path)
      : file_(std::move(file)), path_(std::move(path)) {}
  CacheLock(CacheLock&&) = default;
  CacheLock& operator=(CacheLock&&) = delete;
  ~CacheLock();

 private:
  mscclpp::detail::UniqueFd file_;
  std::filesystem::path path_;
};

/// Any thread and process may use the same folder. No function throws for a file system that fails: then nothing is
/// found or stored, and one warning is logged in the process.
class ProgramCache {
 public:
  /// Makes the folder if it is missing. Folders in which other users can write are not used, since they could replace
  /// the code.
  explicit ProgramCache(std::filesystem::path folder);

  /// Null if there is none, or its file is damaged, which is deleted. `key` is a file name, and unique to the content.
  std::optional<CachedProgram> find(const std::string& key) const;
  /// Readers see the whole file or none.
  void store(const std::string& key, const CachedProgram& program) const;
  /// Waits until no other thread or process has the lock of this key. Empty if the deadline passes or there can be no
  /// lock file: then the caller compiles as well.
  CacheLock lock(const std::string& key, const mscclpp::detail::Deadline& deadline) const;
  /// Deletes the programs used least recently, until the rest takes at most `maxBytes`. Returns what remains.
  std::uint64_t prune(std::uint64_t maxBytes) const;

 private:
  std::filesystem::path fileOf(const std::string& key) const { return folder_ / (key + ".bin"); }
  std::filesystem::path lockFileOf(const std::string& key) const { return folder_ / (key + ".lock"); }

  std::filesystem::path folder_;
  bool usable_ = false;
};

}  // namespace mscclpp::jit::detail
