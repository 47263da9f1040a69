// The folder of compiled programs: damage, locks of other processes, folders that cannot be used, pruning.
#include "kernels/jit/program_cache.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "temporary_folder.hpp"

using namespace mscclpp::jit::detail;
using mscclpp::detail::Deadline;
using mscclpp::test::contentOf;
using mscclpp::test::TemporaryFolder;
using namespace std::chrono_literals;

namespace {

const CachedProgram program{.image = std::string("\x7f\0ELF", 5), .log = "a warning", .loweredNames = {"_Z1k", ""}};

bool same(const std::optional<CachedProgram>& found) {
  return found && found->image == program.image && found->log == program.log &&
         found->loweredNames == program.loweredNames;
}

}  // namespace

TEST_CASE("a program that was stored is found, under its key only") {
  const TemporaryFolder folder;
  const ProgramCache cache(folder.path() / "made" / "here");
  CHECK_FALSE(cache.find("key"));
  cache.store("key", program);
  CHECK(same(cache.find("key")));
  CHECK_FALSE(cache.find("other"));
  // A file that was renamed is not what its name says.
  std::filesystem::rename(folder.path() / "made/here/key.bin", folder.path() / "made/here/other.bin");
  CHECK_FALSE(cache.find("other"));
  // No temporary file stays.
  CHECK(std::filesystem::is_empty(folder.path() / "made/here"));
}

TEST_CASE("a damaged file is not found, and is stored again") {
  const TemporaryFolder folder;
  const ProgramCache cache(folder.path());
  cache.store("key", program);
  const auto file = folder.path() / "key.bin";
  const std::string right = contentOf(file);
  std::vector<std::string> damaged = {"", right.substr(0, 10), right.substr(0, right.size() - 1), right + "x"};
  for (std::size_t i = 0; i < right.size(); ++i) {
    damaged.push_back(right);
    damaged.back()[i] = static_cast<char>(damaged.back()[i] ^ 1);
  }
  for (const auto& text : damaged) {
    folder.write("key.bin", text);
    REQUIRE_FALSE(cache.find("key"));
    REQUIRE_FALSE(std::filesystem::exists(file));
  }
  cache.store("key", program);
  CHECK(same(cache.find("key")));
}

TEST_CASE("one lock at a time") {
  const TemporaryFolder folder;
  const ProgramCache cache(folder.path());
  std::atomic<bool> free = false;
  std::thread other;
  {
    std::optional<CacheLock> lock(cache.lock("key", Deadline::after(1s)));
    CHECK(std::filesystem::exists(folder.path() / "key.lock"));
    { const CacheLock unrelated = cache.lock("another", Deadline::after(0ms)); }
    CHECK_FALSE(std::filesystem::exists(folder.path() / "another.lock"));
    // A second attempt ends at its deadline, and leaves the lock alone.
    const auto start = std::chrono::steady_clock::now();
    { const CacheLock none = cache.lock("key", Deadline::after(50ms)); }
    CHECK(std::chrono::steady_clock::now() - start >= 50ms);
    CHECK(std::filesystem::exists(folder.path() / "key.lock"));
    other = std::thread([&] {
      const CacheLock lock = cache.lock("key", Deadline::after(30s));
      CHECK(free);
    });
    std::this_thread::sleep_for(20ms);
    free = true;
  }
  other.join();
  CHECK_FALSE(std::filesystem::exists(folder.path() / "key.lock"));
}

TEST_CASE("the lock of a process that ended is free") {
  const TemporaryFolder folder;
  const ProgramCache cache(folder.path());
  const pid_t child = ::fork();
  if (child == 0) {
    const CacheLock lock = cache.lock("key", Deadline::after(1s));
    ::_exit(0);  // the destructor does not run
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(std::filesystem::exists(folder.path() / "key.lock"));
  const auto start = std::chrono::steady_clock::now();
  { const CacheLock lock = cache.lock("key", Deadline::after(30s)); }
  CHECK(std::chrono::steady_clock::now() - start < 10s);
  CHECK_FALSE(std::filesystem::exists(folder.path() / "key.lock"));
}

TEST_CASE("a folder that cannot be made, or that others can write to, is not used") {
  const TemporaryFolder folder;
  const auto file = folder.write("file", "");
  const auto open = folder.path() / "open";
  std::filesystem::create_directory(open);
  ::chmod(open.c_str(), 0777);
  for (const auto& path : {file, file / "below", open}) {
    CAPTURE(path.string());
    const ProgramCache cache(path);
    cache.store("key", program);
    CHECK_FALSE(cache.find("key"));
    CHECK(cache.prune(0) == 0);
    const CacheLock lock = cache.lock("key", Deadline::after(30s));
  }
  CHECK(std::filesystem::is_empty(open));
}

TEST_CASE("pruning deletes the programs that were not used for the longest time") {
  const TemporaryFolder folder;
  const ProgramCache cache(folder.path());
  const auto now = std::filesystem::file_time_type::clock::now();
  const char* keys[] = {"c", "a", "b"};  // from the oldest
  for (int i = 0; i < 3; ++i) {
    cache.store(keys[i], program);
    std::filesystem::last_write_time(folder.path() / (std::string(keys[i]) + ".bin"), now - std::chrono::hours(9 - i));
  }
  folder.write("unrelated.txt", "text");
  const auto bytes = std::filesystem::file_size(folder.path() / "a.bin");
  CHECK(cache.prune(3 * bytes) == 3 * bytes);
  CHECK(cache.find("c"));  // used now, so it is the newest from here on
  CHECK(cache.prune(3 * bytes - 1) == 2 * bytes);
  CHECK_FALSE(cache.find("a"));
  CHECK(cache.find("b"));
  CHECK(cache.find("c"));
  CHECK(cache.prune(0) == 0);
  CHECK(std::filesystem::exists(folder.path() / "unrelated.txt"));
}
