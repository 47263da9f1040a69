// Which files a source includes: the cache must notice a change of each.
#include "kernels/jit/included_files.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "temporary_folder.hpp"

using namespace mscclpp::jit::detail;
using mscclpp::test::TemporaryFolder;

namespace {

std::vector<std::string> pathsOf(const std::string& source, const HeaderTexts& headers,
                                 const std::vector<std::string>& folders) {
  std::vector<std::string> paths;
  for (const auto& file : includedFiles(source, headers, folders)) paths.push_back(file.path);
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

TEST_CASE("files are found through folders, each once, and followed") {
  const TemporaryFolder folder;
  const auto a = folder.write("one/a.hpp", "#include \"b.hpp\"\n#include <c.hpp>\n").string();
  const auto b = folder.write("one/b.hpp", "#include \"a.hpp\"\n").string();
  const auto c = folder.write("two/c.hpp", "int c;").string();
  folder.write("two/other.hpp", "");
  const std::vector<std::string> folders = {folder.path() / "one", folder.path() / "two"};
  CHECK(pathsOf("#include <a.hpp>\n#include \"a.hpp\"\n#include <none.hpp>\n", {}, folders) ==
        std::vector<std::string>{a, b, c});
  CHECK(includedFiles("#include <c.hpp>", {}, folders).at(0).text == "int c;");
}

TEST_CASE("every spelling of the directive counts, whatever #if says") {
  const TemporaryFolder folder;
  const auto a = folder.write("a.hpp", "").string();
  for (const char* source : {"#include <a.hpp>", "#if 0\n#include \"a.hpp\"\n#endif", "  #  include\t<a.hpp> // why",
                             "int x;\n#include<a.hpp>\nint y;"}) {
    CAPTURE(source);
    CHECK(pathsOf(source, {}, {folder.path()}) == std::vector<std::string>{a});
  }
  for (const char* source :
       {"", "include <a.hpp>", "#include a.hpp", "#include <a.hpp", "#define include <a.hpp>", "#"}) {
    CAPTURE(source);
    CHECK(pathsOf(source, {}, {folder.path()}).empty());
  }
}

TEST_CASE("the first folder that has a name wins, after texts") {
  const TemporaryFolder folder;
  const auto first = folder.write("one/a.hpp", "").string();
  folder.write("two/a.hpp", "");
  const std::vector<std::string> folders = {folder.path() / "one", folder.path() / "two"};
  CHECK(pathsOf("#include <a.hpp>", {}, folders) == std::vector<std::string>{first});
  CHECK(pathsOf("#include <a.hpp>", {{"a.hpp", "int a;"}}, folders).empty());
  // Texts are followed too.
  CHECK(pathsOf("#include <t.hpp>", {{"t.hpp", "#include <a.hpp>"}}, folders) == std::vector<std::string>{first});
  // Not beside the including file.
  folder.write("three/top.hpp", "#include \"a.hpp\"");
  folder.write("three/a.hpp", "");
  CHECK(pathsOf("#include <three/top.hpp>", {}, {folder.path(), folder.path() / "one"}) ==
        std::vector<std::string>{first, folder.path() / "three/top.hpp"});
}
