#include "kernels/jit/included_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "host/base/unique_fd.hpp"

namespace mscclpp::jit::detail {

namespace {

using mscclpp::detail::UniqueFd;

std::string_view withoutLeadingSpace(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view() : text.substr(first);
}

// The name in an #include directive, which starts with #; empty for anything else.
std::string_view includedName(std::string_view line) {
  line = withoutLeadingSpace(line.substr(1));
  constexpr std::string_view directive = "include";
  if (!line.starts_with(directive)) return {};
  line = withoutLeadingSpace(line.substr(directive.size()));
  if (!line.starts_with('"') && !line.starts_with('<')) return {};
  const auto end = line.find(line.front() == '"' ? '"' : '>', 1);
  return end == std::string_view::npos ? std::string_view() : line.substr(1, end - 1);
}

std::optional<std::string> readFile(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const ssize_t result = ::read(file.get(), text.data() + bytes, text.size() - bytes);
    if (result < 0 && errno == EINTR) continue;
    if (result <= 0) break;
    bytes += static_cast<std::size_t>(result);
  }
  text.resize(bytes);
  return text;
}

class Search {
 public:
  Search(const HeaderTexts& headers, const std::vector<std::string>& folders)
      : headers_(headers.begin(), headers.end()), folders_(folders) {}

  void scan(std::string_view text) {
    // Few lines have a #.
    for (auto mark = text.find('#'); mark != std::string_view::npos; mark = text.find('#', mark + 1)) {
      const auto name = includedName(text.substr(mark, text.find('\n', mark) - mark));
      if (!name.empty()) follow(std::string(name));
    }
  }

  std::vector<IncludedFile> takeFound() { return std::move(found_); }

 private:
  void follow(const std::string& name) {
    if (!searched_.insert(name).second) return;
    if (const auto header = headers_.find(name); header != headers_.end()) return scan(header->second);
    for (const auto& folder : folders_) {
      if (read(folder + "/" + name)) return;
    }
  }

  bool read(const std::string& path) {
    auto text = readFile(path);
    if (!text) return false;
    scan(*text);
    found_.push_back({path, std::move(*text)});
    return true;
  }

  std::unordered_map<std::string_view, std::string_view> headers_;
  const std::vector<std::string>& folders_;
  std::unordered_set<std::string> searched_;
  std::vector<IncludedFile> found_;
};

}  // namespace

std::vector<IncludedFile> includedFiles(std::string_view source, const HeaderTexts& headers,
                                        const std::vector<std::string>& folders) {
  Search search(headers, folders);
  search.scan(source);
  return search.takeFound();
}

}  // namespace mscclpp::jit::detail
