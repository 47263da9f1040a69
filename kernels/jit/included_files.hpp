// The files that a source may include: what the result of its compilation depends on.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mscclpp::jit::detail {

/// Names and texts of headers; both outlive the search.
using HeaderTexts = std::vector<std::pair<std::string_view, std::string_view>>;

/// A file that was found: where, and its text.
struct IncludedFile {
  std::string path;
  std::string text;
};

/// Follows the #include lines of `source` and of what they name, whatever #if says, so that it finds too many files
/// rather than too few. A name is searched among `headers`, then in `folders`, and not beside the including file. Names
/// that are not found are ignored, and so are those that a macro stands for.
std::vector<IncludedFile> includedFiles(std::string_view source, const HeaderTexts& headers,
                                        const std::vector<std::string>& folders);

}  // namespace mscclpp::jit::detail
