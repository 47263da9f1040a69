// Plans as text: everything survives a round trip, and mistakes are answered with their line.
#include "mscclpp/kernels/plan/text.hpp"

#include <doctest/doctest.h>

#include <string>

#include "chunk_programs.hpp"
#include "kernels/plan/draft.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/kernels/plan/json.hpp"
#include "mscclpp/kernels/plan/verify.hpp"
#include "mscclpp/kernels/plan/xml.hpp"

namespace mscclpp::plan {
namespace {

void checkRoundTrip(const NamedPlan& plan) {
  const Draft draft = draftOf(plan), again = draftOf(fromText(toText(plan)));
  REQUIRE(again.ranks.size() == draft.ranks.size());
  for (std::size_t r = 0; r < draft.ranks.size(); ++r) {
    CHECK(again.ranks[r].channels == draft.ranks[r].channels);
    CHECK(again.ranks[r].semaphores == draft.ranks[r].semaphores);
    CHECK(again.ranks[r].blocks.size() == draft.ranks[r].blocks.size());
  }
  CHECK(again.expectations == draft.expectations);
  CHECK(toText(fromText(toText(plan))) == toText(plan));
}

/// One of everything; not a plan that is right.
constexpr const char* everything = R"(
plan "a" custom ranks 3 chunks 1 root 2 in-place threads 64 alignment 32 from 16 to 4096 double-scratch reuse-resources
expect 0 1: 0[1] + 2[0]
rank 0 input 2 output 3 scratch 4   # a comment
  channel 0 memory 1
  channel 1 port 2
  channel 2 switch output 0 1 2
  semaphore 0
  semaphore 1 initially 2
  block 0
    transfer 2 at 0: input[0] + scratch[1] -> output[1], scratch[2]@1.packets    # ring.py:12
    transfer 1 at 0 share 1 of 3: scratch[0].packets -> scratch[3]@1.packets
    transfer 1 at 0: output[1] -> output[1]@2:port1
    transfer 1 at 0: output[1]@switch2 -> output[1]@switch2
    signal 0 1
    signal relaxed 0
    wait 0
    flush 1
    sync
    barrier 3 of 2
    acquire 0 1
    release 1
    loop 65536
      wait relaxed 0
    end
  block 1
    barrier 3 of 2
rank 1 scratch 4
rank 2
)";

TEST_CASE("every operation, operand and property is written and read") {
  const NamedPlan plan = fromText(everything);
  checkRoundTrip(plan);
  CHECK(plan.name == "a");
  CHECK(plan.root == 2);
  CHECK(plan.inPlace);
  CHECK(plan.threadsPerBlock == 64);
  CHECK(plan.alignment == 32);
  CHECK(plan.minBytes == 16);
  CHECK(plan.maxBytes == 4096);
  CHECK(plan.doubleScratch);
  CHECK(plan.reuseResources);
  const Draft draft = draftOf(plan);
  CHECK(draft.expectations[0] == DraftExpectation{0, 1, {{0, 1}, {2, 0}}});
  CHECK(draft.ranks[0].inputChunks == 2);
  CHECK(draft.ranks[0].semaphores == std::vector{0, 2});
  CHECK(draft.ranks[0].channels[2] == DraftChannel{Access::Switch, 0, BufferKind::Output, {0, 1, 2}});
  const auto& steps = draft.ranks[0].blocks[0];
  REQUIRE(steps.size() == 15);
  CHECK(steps[0].destinations[1] == Operand{BufferKind::Scratch, Form::Packet, Access::Memory, 1, -1, 2});
  CHECK(draft.origins[steps[0].operation.origin] == "ring.py:12");
  CHECK(steps[1].operation.share == 1);
  CHECK(steps[1].operation.shares == 3);
  CHECK(steps[2].destinations[0] == Operand{BufferKind::Output, Form::Plain, Access::Port, 2, 1, 1});
  CHECK(steps[3].sources[0] == Operand{BufferKind::Output, Form::Plain, Access::Switch, 0, 2, 1});
  CHECK(steps[5].operation.relaxed);
  CHECK(steps[9].operation.blocks == 2);
  CHECK(steps[12].operation.unitBytes == 65536);
  CHECK(steps[14].operation.kind == OperationKind::LoopEnd);
  // All lines but the first empty one and the comment of the rank are written as they were read.
  std::string expected = everything + 1;
  expected.replace(expected.find("   # a comment"), 14, "");
  expected.replace(expected.find("rank 1 scratch 4\nrank 2\n"), std::string::npos,
                   "rank 1 input 1 output 1 scratch 4\nrank 2 input 1 output 1\n");
  CHECK(toText(plan) == expected);
}

TEST_CASE("a compiled program survives as text") {
  using namespace mscclpp::msccl;
  for (const Protocol protocol : {Protocol::Simple, Protocol::LL}) {
    const NamedPlan plan =
        ringAllReduce({.name = "ring", .collective = AllReduce(4, 1, true), .instances = 2, .protocol = protocol})
            .compile();
    checkRoundTrip(plan);
    CHECK_NOTHROW(verified(fromText(toText(plan))));
  }
}

TEST_CASE("names go through every form, and those that some form could not hold are refused") {
  using namespace mscclpp::msccl;
  NamedPlan plan = ringAllGather({.name = "ring", .collective = AllGather(2)}).compile();
  plan.name = "a # b \"c\" \\n <\xC3\xA9> plan \\";
  CHECK(fromText(toText(plan)).name == plan.name);
  CHECK(fromJson(toJson(plan)).name == plan.name);
  CHECK(fromXml(toXml(plan)).name == plan.name);
  for (const std::string& name : {std::string("\x1b[31m"), std::string(1, '\0'), std::string("\xC3"),
                                  std::string("\xFF"), std::string("\xC0\x80"), std::string(257, 'x')}) {
    CHECK_THROWS_WITH_AS(ringAllGather({.name = name, .collective = AllGather(2)}), doctest::Contains("the name "),
                         Error);
    CHECK_THROWS_AS(fromText("plan \"" + name + "\" allreduce ranks 2"), Error);
    CHECK_THROWS_AS(fromXml("<algo name=\"" + name + "\" ngpus=\"2\" coll=\"allreduce\"/>"), Error);
  }
}

TEST_CASE("plans with numbers outside of their arrays are not written") {
  const NamedPlan right = msccl::ringAllGather({.name = "ring", .collective = AllGather(2)}).compile();
  const auto refuses = [&](const auto& change, const char* part) {
    NamedPlan wrong = right;
    change(wrong);
    for (const auto write : {toText, toJson, toXml}) CHECK_THROWS_WITH_AS(write(wrong), doctest::Contains(part), Error);
  };
  refuses([](NamedPlan& plan) { plan.operands[0].rank = 2; }, "rank");
  refuses([](NamedPlan& plan) { plan.operands[0].first = -1; }, "chunk");
  refuses([](NamedPlan& plan) { plan.operations[0].sources.count = 1 << 20; },
          "a list of it refers to entries that do not exist");
  refuses([](NamedPlan& plan) { plan.rankPlans[1].blocks.first = -5; },
          "a list of it refers to entries that do not exist");
  refuses([](NamedPlan& plan) { plan.references[0] = 77; }, "no device semaphore 77");
}

TEST_CASE("mistakes are answered with their line") {
  const struct {
    std::string text, message;
  } cases[] = {{"", "there is no line that starts with plan"},
               {"rank 0", "line 1: the first line starts with plan"},
               {"plan ring allreduce ranks 2", "line 1: expected a name in quotation marks"},
               {"plan \"ring allreduce", "line 1: a quotation mark is missing"},
               {"plan \"a\" sum ranks 2", "there is no collective \"sum\""},
               {"plan \"a\" allreduce", "the number of ranks is missing"},
               {"plan \"a\" allreduce ranks two", "expected a number up to 32767, found \"two\""},
               {"plan \"a\" allreduce ranks 2 colour", "unexpected \"colour\""},
               {"plan \"a\" allreduce ranks 2 \u00e4", "unexpected \"\u00e4\""},
               {"plan \"a\" allreduce ranks 2 \u20ac", "unexpected \"\u20ac\""},
               {"plan \"a\" \"" + std::string(78, 'x') + "\u20ac\" ranks 2", std::string(78, 'x') + "...\""},
               {"plan \"a\" \"" + std::string(77, 'x') + "\u00e4y\" ranks 2", std::string(77, 'x') + "\u00e4...\""},
               {"plan \"a\" allreduce ranks 2\n\nrank 2", "line 3: rank 2 does not exist"},
               {"plan \"a\" allreduce ranks 2\nblock 0", "line 2: a line that starts with rank is missing"},
               {"plan \"a\" allreduce ranks 2\nrank 0\nsync", "a line that starts with block is missing"},
               {"plan \"a\" allreduce ranks 2\nrank 0\nblock 1", "line 3: blocks are numbered from 0"},
               {"plan \"a\" allreduce ranks 2\nrank 0\nchannel 1 memory 1", "channels are numbered from 0"},
               {"plan \"a\" allreduce ranks 2\nrank 0\nchannel 0 wire 1", "expected memory, found \"wire\""},
               {"plan \"a\" allreduce ranks 2\nrank 0\nblock 0\njump", "line 4: there is no operation \"jump\""},
               {"plan \"a\" allreduce ranks 2\nrank 0\nblock 0\nsync now", "expected a number"},
               {"plan \"a\" allreduce ranks 2\nrank 0\nblock 0\nbarrier 0", "expected of, found the end of the line"},
               {"plan \"a\" allreduce ranks 2\nrank 0\nblock 0\ntransfer 1: heap[0] -> output[0]",
                "expected input, output or scratch, found \"heap\""},
               {"plan \"a\" allreduce ranks 2\nrank 0\nblock 0\ntransfer 1: input[0]", "expected ->"},
               {"plan \"a\" allreduce ranks 2\nrank 0\nblock 0\ntransfer 1: input[0] -> input[0]@1:3",
                "expected port and a number, found \"3\""},
               {"plan \"a\" allreduce ranks 2\nrank 0\nblock 0\ntransfer 1: input[0] -> input[0]@1:port70000",
                "expected port and a number up to 32767, found \"port70000\""},
               {"plan \"a\" allreduce ranks 2\nrank 0\nblock 0\ntransfer 1: input[0] -> input[0]@70000",
                "expected a number up to 32767, found \"70000\""},
               {"plan \"a\" allreduce ranks 2\nplan \"a\" allreduce ranks 2", "line 2: a second plan"}};
  for (const auto& mistake : cases) {
    std::string message;
    try {
      fromText(mistake.text);
    } catch (const Error& error) {
      message = error.what();
    }
    CHECK_MESSAGE(message.find(mistake.message) != std::string::npos, message, " / ", mistake.message);
  }
}

}  // namespace
}  // namespace mscclpp::plan
