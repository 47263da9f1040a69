#include "kernels/jit/included_files.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <unordered_map>
#include <unordered_set>

namespace mscclpp::jit::detail {

namespace {

std::string_view withoutLeadingSpace(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view() : text.substr(first);
}

// The name in an #include line; empty for any other line.
std::string_view includedName(std::string_view line) {
  line = withoutLeadingSpace(line);
  if (!line.starts_with('#')) return {};
  line = withoutLeadingSpace(line.substr(1));
  constexpr std::string_view directive = "include";
  if (!line.starts_with(directive)) return {};
  line = withoutLeadingSpace(line.substr(directive.size()));
  if (!line.starts_with('"') && !line.starts_with('<')) return {};
  const auto end = line.find(line.front() == '"' ? '"' : '>', 1);
  return end == std::string_view::npos ? std::string_view() : line.substr(1, end - 1);
}

std::optional<std::string> readFile(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class Search {
 public:
  Search(const HeaderTexts& headers, const std::vector<std::string>& folders)
      : headers_(headers.begin(), headers.end()), folders_(folders) {}

  // `folder`: of the file that has this text; empty if it is none.
  void scan(std::string_view text, const std::string& folder) {
    while (!text.empty()) {
      const auto end = text.find('\n');
      const auto name = includedName(text.substr(0, end));
      if (!name.empty()) follow(std::string(name), folder);
      text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    }
  }

  std::vector<IncludedFile> takeFound() { return std::move(found_); }

 private:
  void follow(const std::string& name, const std::string& folder) {
    if (const auto header = headers_.find(name); header != headers_.end()) {
      if (visited_.insert(name).second) scan(header->second, {});
      return;
    }
    if (!folder.empty()) read(folder + "/" + name);
    // Most names are included many times.
    if (!searched_.insert(name).second) return;
    for (const auto& place : folders_) {
      if (read(place + "/" + name)) return;
    }
  }

  bool read(const std::string& path) {
    if (visited_.contains(path)) return true;
    auto text = readFile(path);
    if (!text) return false;
    visited_.insert(path);
    found_.push_back({path, *text});
    scan(*text, path.substr(0, path.rfind('/')));
    return true;
  }

  std::unordered_map<std::string_view, std::string_view> headers_;
  const std::vector<std::string>& folders_;
  std::unordered_set<std::string> visited_;
  std::unordered_set<std::string> searched_;
  std::vector<IncludedFile> found_;
};

}  // namespace

std::vector<IncludedFile> includedFiles(std::string_view source, const HeaderTexts& headers,
                                        const std::vector<std::string>& folders) {
  Search search(headers, folders);
  search.scan(source, {});
  // Options may name headers that the source does not (-include), so all that are given as text count.
  for (const auto& [name, text] : headers) search.scan(text, {});
  return search.takeFound();
}

}  // namespace mscclpp::jit::detail
