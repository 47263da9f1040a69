#include "kernels/jit/program_cache.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>

#include "host/base/byte_stream.hpp"
#include "kernels/jit/content_hash.hpp"
#include "mscclpp/host/base/logger.hpp"

namespace mscclpp::jit::detail {

namespace {

namespace filesystem = std::filesystem;
using mscclpp::detail::ByteReader;
using mscclpp::detail::ByteWriter;
using mscclpp::detail::Deadline;
using mscclpp::detail::UniqueFd;
using mscclpp::detail::WireFormat;

constexpr WireFormat fileFormat{"program in the cache", 0x4a495450, 1};
constexpr std::string_view extension = ".bin";

std::vector<char> bytesOf(const std::string& text) {
  return {text.begin(), text.end()};
}
std::string textOf(const std::vector<char>& bytes) {
  return {bytes.begin(), bytes.end()};
}

void warnOnce(const std::string& what) {
  static std::atomic<bool> warned = false;
  if (warned.exchange(true)) return;
  logMessage(LogLevel::Warn, LogSubsystem::Gpu, "kernels compiled at run time and proofs of plans are not kept: ", what,
             "; set MSCCLPP_CACHE_DIR to a folder of your own");
}

std::string errnoText() {
  return std::generic_category().message(errno);
}

ContentHash::Digest digestOf(const std::vector<char>& bytes) {
  return ContentHash().add({bytes.data(), bytes.size()}).finish();
}

// The serialised program and a digest of it.
std::vector<char> serialize(const std::string& key, const CachedProgram& program) {
  ByteWriter writer(fileFormat);
  writer.putBytes(bytesOf(key)).putBytes(bytesOf(program.image)).putBytes(bytesOf(program.log));
  writer.put(static_cast<std::uint64_t>(program.loweredNames.size()));
  for (const auto& name : program.loweredNames) writer.putBytes(bytesOf(name));
  auto bytes = writer.finish();
  const auto digest = digestOf(bytes);
  bytes.insert(bytes.end(), digest.begin(), digest.end());
  return bytes;
}

// Null if the bytes are not what serialize() returns for this key.
std::optional<CachedProgram> deserialize(std::vector<char> bytes, const std::string& key) {
  ContentHash::Digest digest;
  if (bytes.size() < digest.size()) return std::nullopt;
  const auto body = bytes.size() - digest.size();
  std::memcpy(digest.data(), bytes.data() + body, digest.size());
  bytes.resize(body);
  if (digestOf(bytes) != digest) return std::nullopt;
  try {
    ByteReader reader(bytes, fileFormat);
    if (textOf(reader.getBytes()) != key) return std::nullopt;
    CachedProgram program;
    program.image = textOf(reader.getBytes());
    program.log = textOf(reader.getBytes());
    for (auto left = reader.get<std::uint64_t>(); left > 0; --left) {
      program.loweredNames.push_back(textOf(reader.getBytes()));
    }
    reader.expectEnd();
    return program;
  } catch (const Error&) {  // of another version of the library
    return std::nullopt;
  }
}

// Makes the folder if it is missing. Returns why it cannot be used, or an empty text.
std::string prepareFolder(const filesystem::path& folder) {
  std::error_code error;
  if (!filesystem::is_directory(folder, error)) {
    filesystem::create_directories(folder.parent_path(), error);
    // Another process may be first; whose folder it is, is checked below.
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
      return "cannot make the folder " + folder.string() + " (" + errnoText() + ")";
    }
  }
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) {
    return "cannot read the folder " + folder.string() + " (" + errnoText() + ")";
  }
  if (!S_ISDIR(status.st_mode)) return folder.string() + " is not a folder";
  const bool trustedOwner = status.st_uid == ::geteuid() || status.st_uid == 0;
  if (!trustedOwner || (status.st_mode & S_IWOTH) != 0) return "other users can write to " + folder.string();
  return {};
}

bool writeAll(int descriptor, const std::vector<char>& bytes) {
  std::size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t result = ::write(descriptor, bytes.data() + written, bytes.size() - written);
    if (result < 0 && errno == EINTR) continue;
    if (result <= 0) return false;
    written += static_cast<std::size_t>(result);
  }
  return true;
}

}  // namespace

ProgramCache::ProgramCache(filesystem::path folder) : folder_(std::move(folder)) {
  const std::string problem = prepareFolder(folder_);
  usable_ = problem.empty();
  if (!usable_) warnOnce(problem);
}

std::optional<CachedProgram> ProgramCache::find(const std::string& key) const {
  if (!usable_) return std::nullopt;
  const auto path = fileOf(key);
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
  auto program = deserialize(std::move(bytes), key);
  std::error_code ignored;
  if (program) {
    filesystem::last_write_time(path, filesystem::file_time_type::clock::now(), ignored);  // prune() sorts by it
  } else {
    filesystem::remove(path, ignored);
  }
  return program;
}

void ProgramCache::store(const std::string& key, const CachedProgram& program) const {
  if (!usable_) return;
  std::string temporary = (folder_ / "new-XXXXXX").string();
  const UniqueFd file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!file) return warnOnce("cannot write to " + folder_.string() + " (" + errnoText() + ")");
  if (!writeAll(file.get(), serialize(key, program)) || ::rename(temporary.c_str(), fileOf(key).c_str()) != 0) {
    warnOnce("cannot write to " + folder_.string() + " (" + errnoText() + ")");
    ::unlink(temporary.c_str());
  }
}

CacheLock ProgramCache::lock(const std::string& key, const Deadline& deadline) const {
  if (!usable_) return {};
  const auto path = lockFileOf(key);
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file) return {};
  // The system frees the lock of a process that ends.
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if ((errno != EWOULDBLOCK && errno != EINTR) || deadline.expired()) return {};
    deadline.sleep(std::chrono::milliseconds(10));
  }
  return {std::move(file), path};
}

// Whoever waits for the removed file gets its lock next; whoever comes later makes a new one. Both then look for the
// program before they compile.
CacheLock::~CacheLock() {
  if (file_) ::unlink(path_.c_str());
}

std::uint64_t ProgramCache::prune(std::uint64_t maxBytes) const {
  struct File {
    filesystem::file_time_type lastUse;
    std::uint64_t bytes;
    filesystem::path path;
  };
  std::vector<File> files;
  std::uint64_t total = 0;
  if (!usable_) return total;
  std::error_code error;
  for (filesystem::directory_iterator entry(folder_, error), end; entry != end; entry.increment(error)) {
    if (entry->path().extension() != extension) continue;
    std::error_code vanished;
    const File file{entry->last_write_time(vanished), entry->file_size(vanished), entry->path()};
    if (vanished) continue;
    total += file.bytes;
    files.push_back(file);
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.lastUse < b.lastUse; });
  for (const auto& file : files) {
    if (total <= maxBytes) break;
    if (filesystem::remove(file.path, error)) total -= file.bytes;
  }
  return total;
}

}  // namespace mscclpp::jit::detail
