// The choice of algorithms: lists of names, files of measurements, and what the environment asks for.
#include "kernels/selection.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>

#include "kernels/tuning_file.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "tests/host/spawned_ranks.hpp"
#include "tests/host/trace/trace_file.hpp"

using namespace mscclpp;
using namespace mscclpp::kernels;
using namespace mscclpp::test;

namespace {

constexpr const char* exampleFile = R"({"format": "mscclpp tuning 1", "tables": [
  {"device": "", "ranks": 2, "collective": "all_gather", "choices": [
    {"maxBytes": 1000, "algorithm": "ll16"}, {"maxBytes": 5000, "algorithm": "direct"},
    {"maxBytes": 5000, "algorithm": "sentinel"}, {"algorithm": "pipelined"}]},
  {"device": "", "ranks": 3, "collective": "all_gather", "choices": [{"algorithm": "pipelined"}]},
  {"device": "Other", "ranks": 2, "collective": "broadcast", "choices": [{"maxBytes": 9, "algorithm": "ll16"}]}]})";

/// What this process selects by; the library reads its environment once.
struct Environment {
  TemporaryFile file{"tuning.json"};
  Environment() {
    std::ofstream(file.path()) << exampleFile;
    ::setenv("MSCCLPP_TUNING_FILE", file.path().c_str(), 1);
    ::setenv("MSCCLPP_ALGO", "all_reduce:two_shot_sentinel", 1);
  }
};
const Environment environment;

void expectError(const std::string& part, const std::function<void()>& call) {
  try {
    call();
    FAIL_CHECK("no exception was thrown; expected \"" << part << "\"");
  } catch (const Error& error) {
    CHECK(error.getErrorCode() == ErrorCode::InvalidUsage);
    const std::string what = error.what();
    CHECK_MESSAGE(what.find(part) != std::string::npos, what);
  }
}

std::string nameOfChoice(const Collectives& collectives, CollectiveType collective, std::size_t bytes,
                         DataType type = DataType::UINT8) {
  return collectives.selectedAlgorithm({.collective = collective, .count = bytes / sizeOf(type), .type = type});
}

}  // namespace

TEST_CASE("lists of algorithms") {
  CHECK(parseAlgorithmList("").empty());
  CHECK(parseAlgorithmList("all_gather:pipelined,all_reduce:one_shot_ll16") ==
        std::vector<std::size_t>{indexOf(CollectiveType::AllGather, "pipelined"),
                                 indexOf(CollectiveType::AllReduce, "one_shot_ll16")});
  expectError("\"pipelined\" has no colon", [] { parseAlgorithmList("pipelined"); });
  expectError("no collective \"allreduce\"", [] { parseAlgorithmList("allreduce:pipelined"); });
  expectError("all_gather has no algorithm \"ring\"; it has ll16", [] { parseAlgorithmList("all_gather:ring"); });
  expectError("has no colon", [] { parseAlgorithmList("all_gather:ll16,"); });
}

TEST_CASE("files of measurements") {
  const auto read = [](const std::string& text, int ranks = 2) {
    const TemporaryFile file("other.json");
    std::ofstream(file.path()) << text;
    return readTuningFile(file.path(), "", ranks);
  };
  const auto choices = read(exampleFile);
  REQUIRE(choices.size() == 4);
  CHECK(choices[0].isFirst);
  CHECK(choices[0].maxBytes == 1000);
  CHECK_FALSE(choices[1].isFirst);
  CHECK(choices[3].maxBytes == noLimit);
  CHECK(choices[3].algorithm == indexOf(CollectiveType::AllGather, "pipelined"));
  CHECK(read(exampleFile, 3).size() == 1);
  CHECK(read(exampleFile, 4).empty());
  const auto table = [](const std::string& list) {
    return R"({"format": "mscclpp tuning 1", "tables": [{"device": "", "ranks": 2, "collective": "all_gather",
               "choices": [)" +
           list + "]}]}";
  };
  expectError("cannot be opened", [] { readTuningFile("/nonexistent/tuning.json", "", 2); });
  expectError("not a tuning file", [&] { read("{"); });
  expectError("not a tuning file", [&] { read(R"({"format": "mscclpp tuning 1"})"); });
  expectError("its format is not", [&] { read(R"({"format": "another", "tables": []})"); });
  expectError("no algorithm \"ring\"", [&] { read(table(R"({"algorithm": "ring"})")); });
  expectError("up to 262144 bytes only", [&] { read(table(R"({"maxBytes": 262145, "algorithm": "ll16"})")); });
  expectError("up to 262144 bytes only", [&] { read(table(R"({"algorithm": "ll16"})")); });
  expectError("not in the order", [&] {
    read(table(R"({"maxBytes": 9, "algorithm": "ll16"}, {"maxBytes": 8, "algorithm": "sentinel"})"));
  });
  expectError("not a tuning file", [&] { read(table(R"({"maxBytes": "9", "algorithm": "ll16"})")); });
}

TEST_CASE("what the environment asks for is selected, and gives the right result") {
  runAsThreads(2, [](std::shared_ptr<Bootstrap> bootstrap) {
    Collectives collectives(std::make_shared<Communicator>(bootstrap), DeviceType::CPU);
    CHECK(nameOfChoice(collectives, CollectiveType::AllReduce, 1000, DataType::FLOAT32) == "two_shot_sentinel");
    CHECK(nameOfChoice(collectives, CollectiveType::AllReduce, 17 << 20, DataType::FLOAT32) == "pipelined");
    CHECK(nameOfChoice(collectives, CollectiveType::AllReduce, 1000) == "pipelined");  // not compiled for the type
    CHECK(nameOfChoice(collectives, CollectiveType::AllGather, 1000) == "ll16");
    CHECK(nameOfChoice(collectives, CollectiveType::AllGather, 1001) == "sentinel");  // "direct" needs registration
    CHECK(nameOfChoice(collectives, CollectiveType::AllGather, 5001) == "pipelined");
    CHECK(nameOfChoice(collectives, CollectiveType::Broadcast, 5) == "pipelined");  // measured on another device
    HostBuffer registered(10'000);
    const auto registration = collectives.registerBuffer(registered.data(), registered.bytes());
    const CollectiveCall call{
        .collective = CollectiveType::AllGather, .output = registered.data(), .count = 5000, .type = DataType::UINT8};
    CHECK(collectives.selectedAlgorithm(call) == "direct");
    const auto rank = static_cast<unsigned char>(bootstrap->getRank());
    const std::vector<unsigned char> input(5000, static_cast<unsigned char>(rank + 1));
    bootstrap->barrier();
    collectives.allGather(input.data(), registered.data(), 5000, DataType::UINT8);
    const auto* output = static_cast<const unsigned char*>(registered.data());
    for (std::size_t i = 0; i < 10'000; ++i) REQUIRE(output[i] == (i < 5000 ? 1 : 2));
    bootstrap->barrier();
  });
}

TEST_CASE("an algorithm that is named takes the messages that it is set up for") {
  runAsThreads(2, [](std::shared_ptr<Bootstrap> bootstrap) {
    const auto communicator = std::make_shared<Communicator>(bootstrap);
    const std::vector<unsigned char> input(300'000, static_cast<unsigned char>(bootstrap->getRank() + 1));
    std::vector<unsigned char> output(600'000);
    const auto gather = [&](Collectives& collectives, std::size_t count) {
      collectives.allGather(input.data(), output.data(), count, DataType::UINT8, nullptr, "ll16");
    };
    const auto supports = [](const Collectives& collectives, std::size_t count) {
      return collectives.supports(
          {.collective = CollectiveType::AllGather, .count = count, .type = DataType::UINT8, .algorithm = "ll16"});
    };
    Collectives selected(communicator, DeviceType::CPU);
    CHECK(supports(selected, 1008));  // selected up to 1000, in whole packs
    CHECK_FALSE(supports(selected, 1009));
    expectError(
        "ll16 is set up for messages of up to 1008 bytes, not 1009: do not name an algorithm, construct Collectives "
        "with Algorithms::All, on all ranks, or use pipelined",
        [&] { gather(selected, 1009); });
    gather(selected, 1008);
    for (std::size_t i = 0; i < 2016; ++i) REQUIRE(output[i] == (i < 1008 ? 1 : 2));
    bootstrap->barrier();
    Collectives all(communicator, DeviceType::CPU, Collectives::Algorithms::All);
    CHECK(supports(all, 262'144));
    CHECK_FALSE(supports(all, 262'145));
    gather(all, 1009);
    for (std::size_t i = 0; i < 2018; ++i) REQUIRE(output[i] == (i < 1009 ? 1 : 2));
    expectError("ll16 supports messages of up to 262144 bytes, not 262145: do not name an algorithm, or use pipelined",
                [&] { gather(all, 262'145); });
    bootstrap->barrier();
  });
}

TEST_CASE("ranks that limit their blocks differently are told so") {
  runAsThreads(2, [](std::shared_ptr<Bootstrap> bootstrap) {
    const auto communicator = std::make_shared<Communicator>(bootstrap);
    expectError("rank 1 selects other algorithms", [&] {
      Collectives(communicator, DeviceType::CPU, Collectives::Algorithms::Selected, 10 + bootstrap->getRank());
    });
    expectError("maxBlocks is 129",
                [&] { Collectives(communicator, DeviceType::CPU, Collectives::Algorithms::Selected, 129); });
  });
}
