// The table of the fastest algorithms, and the file that it is written to.
#include "kernels/tuning_table.hpp"

#include <doctest/doctest.h>

#include <fstream>

#include "mscclpp/host/base/error.hpp"
#include "tests/host/trace/trace_file.hpp"

using namespace mscclpp;
using namespace mscclpp::kernels;
using namespace mscclpp::test;

namespace {

std::string textOf(const TuningTable& table) {
  std::string text;
  for (const auto& choice : table.choices()) text += std::to_string(choice.maxBytes) + ":" + choice.algorithm + " ";
  return text;
}

}  // namespace

TEST_CASE("the fastest algorithm of each size, without alternation due to noise") {
  TuningTable table;
  CHECK(textOf(table) == "");
  for (const std::size_t bytes : {100, 200, 300, 400}) {
    table.add(bytes, "a", false, false, 10 + static_cast<double>(bytes) / 100);
    table.add(bytes, "b", false, true, bytes == 200 ? 11.9 : 13.5);  // 1% faster at 200 only
  }
  CHECK(textOf(table) == "300:a 0:b ");
}

TEST_CASE("algorithms that need registration come first, where they are faster") {
  TuningTable table;
  for (const std::size_t bytes : {100, 200, 300}) {
    table.add(bytes, "a", false, false, 10);
    table.add(bytes, "direct", true, true, bytes == 100 ? 9.9 : 5);
  }
  CHECK(textOf(table) == "100:a 0:direct 300:a ");
}

TEST_CASE("a file keeps the tables of others") {
  const TemporaryFile file("tuning_table.json");
  TuningTable first;
  first.add(100, "a", false, true, 1);
  first.writeTo(file.path(), "GPU", 2, CollectiveType::AllGather);
  first.writeTo(file.path(), "GPU", 4, CollectiveType::AllGather);
  first.writeTo(file.path(), "GPU", 2, CollectiveType::Reduce);
  TuningTable second;
  second.add(100, "b", false, true, 1);
  second.writeTo(file.path(), "GPU", 2, CollectiveType::AllGather);
  const auto json = file.read();
  REQUIRE(json.at("tables").size() == 3);
  int found = 0;
  for (const auto& table : json.at("tables")) {
    const bool isReplaced =
        table.at("ranks").get<int>() == 2 && table.at("collective").get<std::string>() == "all_gather";
    found += isReplaced ? 1 : 0;
    CHECK(table.at("choices").at(0).at("algorithm").get<std::string>() == (isReplaced ? "b" : "a"));
  }
  CHECK(found == 1);
  std::ofstream(file.path()) << "something else";
  CHECK_THROWS_WITH_AS(first.writeTo(file.path(), "GPU", 2, CollectiveType::Reduce),
                       doctest::Contains("is no tuning file"), Error);
}
