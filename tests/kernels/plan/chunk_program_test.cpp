// MSCCL's language: programs compile to plans that are proven, directives do what they say, misuse is refused.
#include "mscclpp/kernels/plan/chunk_program.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "chunk_programs.hpp"
#include "kernels/plan/draft.hpp"
#include "message_of.hpp"
#include "mscclpp/kernels/plan/text.hpp"
#include "mscclpp/kernels/plan/verify.hpp"
#include "mscclpp/kernels/plan/xml.hpp"

namespace mscclpp::msccl {
namespace {

using plan::Draft;
using plan::draftOf;
using plan::OperationKind;
using plan::Step;
using test::messageOf;
using test::says;

ProgramOptions optionsOf(const Collective& collective, Protocol protocol = Protocol::Simple, int instances = 1) {
  return {.name = "test", .collective = collective, .instances = instances, .protocol = protocol};
}

/// How often the XML has instructions of a type.
int countOfType(const std::string& xml, const std::string& type) {
  const std::string text = "type=\"" + type + "\"";
  int count = 0;
  for (std::size_t at = xml.find(text); at != std::string::npos; at = xml.find(text, at + 1)) ++count;
  return count;
}

int blocksOf(const MSCCLProgram& program, int rank) {
  return program.compile().rankPlans[rank].blocks.count;
}

TEST_CASE("programs are proven with both protocols, and in instances of both kinds") {
  for (const Protocol protocol : {Protocol::Simple, Protocol::LL}) {
    for (const int instances : {1, 3}) {
      for (const bool interleaved : {true, false}) {
        for (const int factor : {1, 2}) {
          const auto with = [&](const Collective& collective) {
            ProgramOptions options = optionsOf(collective, protocol, instances);
            options.interleavedReplication = interleaved;
            return options;
          };
          CAPTURE(instances);
          CAPTURE(interleaved);
          CAPTURE(factor);
          CHECK(messageOf([&] { ringAllGather(with(plan::AllGather(3, factor))).check(); }) == "");
          CHECK(messageOf([&] { ringAllGather(with(plan::AllGather(3, factor, true))).check(); }) == "");
          CHECK(messageOf([&] { ringAllReduce(with(plan::AllReduce(3, factor, true))).check(); }) == "");
          CHECK(messageOf([&] { allPairsAllReduce(with(plan::AllReduce(3, factor, true))).check(); }) == "");
        }
      }
    }
  }
}

TEST_CASE("what is received and sent on is one instruction") {
  const std::string gather = ringAllGather(optionsOf(plan::AllGather(4))).toXml();
  CHECK(countOfType(gather, "cpy") == 4);
  CHECK(countOfType(gather, "s") == 4);
  CHECK(countOfType(gather, "rcs") == 8);
  CHECK(countOfType(gather, "r") == 4);
  const std::string reduce = ringAllReduce(optionsOf(plan::AllReduce(4, 1, true))).toXml();
  CHECK(countOfType(reduce, "s") == 4);
  CHECK(countOfType(reduce, "rrs") == 8);  // overwritten by the result later
  CHECK(countOfType(reduce, "rrcs") == 4);
  CHECK(countOfType(reduce, "rcs") == 8);
  CHECK(countOfType(reduce, "r") == 4);
  ProgramOptions options = optionsOf(plan::AllReduce(4, 1, true));
  options.instrFusion = false;
  const std::string unfused = ringAllReduce(options).toXml();
  CHECK(countOfType(unfused, "s") == 24);
  CHECK(countOfType(unfused, "rrc") == 12);
  CHECK(countOfType(unfused, "r") == 12);
  CHECK(messageOf([&] { ringAllReduce(options).check(); }) == "");
}

TEST_CASE("a sum that is used here is kept") {
  // The sum is sent on and read again: rrcs, not rrs.
  MSCCLProgram program(optionsOf(plan::Reduce(3, 1, true, 2)));
  ChunkRef sum = program.chunk(1, BufferKind::Input, 0);
  sum.reduce(program.chunk(0, BufferKind::Input, 0));
  program.chunk(2, BufferKind::Input, 0).reduce(sum);
  sum.copy(1, "kept", 0);
  CHECK(countOfType(program.toXml(), "rrcs") == 1);
  CHECK(countOfType(program.toXml(), "rrs") == 0);
  CHECK(messageOf([&] { program.check(); }) == "");
}

TEST_CASE("directive: channels") {
  // One channel for all parts: one block a rank. One for each: as many blocks.
  CHECK(blocksOf(ringAllGather(optionsOf(plan::AllGather(4)), 0), 1) == 1);
  CHECK(blocksOf(ringAllGather(optionsOf(plan::AllGather(4))), 1) == 4);
  CHECK(messageOf([&] { ringAllGather(optionsOf(plan::AllGather(4)), 0).check(); }) == "");
  CHECK(messageOf([&] { ringAllReduce(optionsOf(plan::AllReduce(4, 1, true)), 0).check(); }) == "");
  // Labels of the program.
  MSCCLProgram program(optionsOf(plan::SendRecv(2, 2)));
  for (int r = 0; r < 2; ++r) {
    program.chunk(r, BufferKind::Input, 0).copy(1 - r, BufferKind::Output, 0, {.ch = 0});
    program.chunk(r, BufferKind::Input, 1).copy(1 - r, BufferKind::Output, 1, {.ch = 1});
  }
  CHECK(blocksOf(program, 0) == 2);
  CHECK(program.compile().rankPlans[0].channels.count == 4);
  CHECK(messageOf([&] { program.check(); }) == "");
}

TEST_CASE("transfers read packets and inputs where they are") {
  const auto transfersOf = [](const MSCCLProgram& program) {
    const plan::NamedPlan plan = plan::verified(program.compile());
    std::vector<std::string> lines;
    std::istringstream text(plan::toText(plan));
    for (std::string line; std::getline(text, line) && line.find("rank 1 ") != 0;) {
      const std::size_t at = line.find("transfer ");
      if (at != std::string::npos) lines.push_back(line.substr(at, line.find("    #") - at));
    }
    return lines;
  };
  // The sum of what arrives is stored and sent on by one transfer, which is the whole of two shots.
  const auto twoShot = [](Protocol protocol) {
    MSCCLProgram program(optionsOf(plan::AllReduce(2), protocol));
    for (int r = 0; r < 2; ++r) {
      ChunkRef sum = program.chunk(r, BufferKind::Input, r).copy(r, BufferKind::Output, r);
      sum.reduce(program.chunk(1 - r, BufferKind::Input, r).copy(r, "parts", 0));
    }
    for (int r = 0; r < 2; ++r) program.chunk(r, BufferKind::Output, r).copy(1 - r);
    return program;
  };
  CHECK(transfersOf(twoShot(Protocol::LL)) ==
        std::vector<std::string>{"transfer 1 at 1: input[1] -> scratch[1]@1.packets",
                                 "transfer 1 at 0: input[0] + scratch[1].packets -> output[0], scratch[2]@1.packets",
                                 "transfer 1 at 1: scratch[2].packets -> output[1]"});
  CHECK(transfersOf(twoShot(Protocol::Simple)).size() == 2);
  // A copy that nobody else reads is not made.
  MSCCLProgram passed(optionsOf(plan::TestCollective(2, 1, 1), Protocol::LL));
  passed.chunk(1, BufferKind::Input, 0).copy(0, "part", 0).copy(0, BufferKind::Output, 0);
  CHECK(plan::toText(passed.compile()).find(".packets -> output[0]") != std::string::npos);
  // One that is read by two transfers is: they may be of different blocks.
  MSCCLProgram readTwice(optionsOf(plan::AllReduce(2), Protocol::LL));
  for (int r = 0; r < 2; ++r) {
    for (int part = 0; part < 2; ++part) {
      const ChunkRef other = readTwice.chunk(1 - r, BufferKind::Input, part).copy(r, "part", part);
      ChunkRef sum = readTwice.chunk(r, BufferKind::Input, part).copy(r, BufferKind::Output, part);
      sum.reduce(other);
      other.copy(r, "again", part);
    }
  }
  CHECK(messageOf([&] { readTwice.check(); }) == "");
  // So is what is overwritten before it is sent, here by rank 0.
  const plan::NamedPlan overwritten = plan::fromXml(R"(
    <algo name="a" proto="LL" nchannels="1" nchunksperloop="1" ngpus="2" coll="allreduce" inplace="1">
      <gpu id="0" i_chunks="1" o_chunks="1" s_chunks="1"><tb id="0" send="1" recv="1" chan="0">
        <step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1"/>
        <step s="1" type="rrc" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1"/>
        <step s="2" type="s" srcbuf="s" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1"/></tb></gpu>
      <gpu id="1" i_chunks="1" o_chunks="1" s_chunks="0"><tb id="0" send="0" recv="0" chan="0">
        <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1"/>
        <step s="1" type="rrc" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1"/></tb></gpu>
    </algo>)");
  CHECK(messageOf([&] { plan::verified(overwritten); }) == "");
}

TEST_CASE("chunks that all transfers treat alike are one") {
  const auto program = [](bool alike) {
    MSCCLProgram made(optionsOf(plan::AllToAll(2, 4)));
    for (int r = 0; r < 2; ++r) {
      for (int peer = 0; peer < 2; ++peer)
        made.chunk(r, BufferKind::Input, 4 * peer, 4).copy(peer, BufferKind::Output, 4 * r);
      if (!alike && r == 0) made.chunk(1, BufferKind::Output, 2, 1).copy(1, "unused", 0);
    }
    return plan::verified(made.compile());
  };
  CHECK(program(true).chunksPerPart == 1);
  CHECK(program(true).rankPlans[0].inputChunks == 2);
  CHECK(program(false).chunksPerPart == 4);
}

TEST_CASE("directive: instances") {
  const MSCCLProgram once = ringAllGather(optionsOf(plan::AllGather(4, 2)), 0);
  const MSCCLProgram thrice = ringAllGather(optionsOf(plan::AllGather(4, 2), Protocol::Simple, 3), 0);
  CHECK(blocksOf(thrice, 0) == 3 * blocksOf(once, 0));
  CHECK(thrice.compile().chunksPerPart == 6);
  CHECK(thrice.compile().rankPlans[0].channels.count == 3 * once.compile().rankPlans[0].channels.count);
  // Interleaved, operations are on single chunks; batched, they keep theirs, which become one.
  const auto chunksOf = [](const plan::NamedPlan& plan) {
    std::set<int> counts;
    for (const plan::Operation& operation : plan.operations) {
      if (operation.kind == OperationKind::Transfer) counts.insert(operation.chunks);
    }
    return counts;
  };
  CHECK(chunksOf(thrice.compile()) == std::set{1});
  ProgramOptions options = optionsOf(plan::AllGather(4, 2), Protocol::Simple, 3);
  options.interleavedReplication = false;
  CHECK(chunksOf(ringAllGather(options, 0).compile()) == std::set{1});
  CHECK(ringAllGather(options, 0).compile().chunksPerPart == 3);
}

TEST_CASE("directive: aggregation") {
  // Two parts for a neighbour travel in one message, by scratch.
  const auto program = [](bool aggregated) {
    MSCCLProgram made(optionsOf(plan::AllToAll(2, 2)));
    for (int r = 0; r < 2; ++r) {
      made.chunk(r, BufferKind::Input, 2 * r, 2).copy(r, BufferKind::Output, 2 * r);
      const ChunkRef both =
          made.chunk(r, BufferKind::Input, 2 * (1 - r)).group(made.chunk(r, BufferKind::Input, 2 * (1 - r) + 1));
      if (aggregated) {
        both.copy(1 - r, BufferKind::Output, 2 * r);
      } else {
        int index = 2 * r;
        for (const ChunkRef& one : both.split(2)) one.copy(1 - r, BufferKind::Output, index++);
      }
    }
    return made;
  };
  CHECK(countOfType(program(true).toXml(), "s") == 2);
  CHECK(countOfType(program(false).toXml(), "s") == 4);
  CHECK(messageOf([&] { program(true).check(); }) == "");
  CHECK(messageOf([&] { program(false).check(); }) == "");
}

TEST_CASE("blocks that the program assigns") {
  const auto program = [](int block, int channel) {
    ProgramOptions options = optionsOf(plan::SendRecv(3, 2));
    options.threadblockPolicy = ThreadblockPolicy::Manual;
    MSCCLProgram made(options);
    for (int r = 0; r < 3; ++r) {
      const int next = (r + 1) % 3;
      made.chunk(r, BufferKind::Input, 0).copy(next, BufferKind::Output, 0, {.sendtb = 1, .recvtb = 1, .ch = 0});
      made.chunk(r, BufferKind::Input, 1)
          .copy(next, BufferKind::Output, 1, {.sendtb = block, .recvtb = block, .ch = channel});
    }
    return made;
  };
  CHECK(blocksOf(program(1, 0), 0) == 2);  // 0 has no instructions
  CHECK(blocksOf(program(3, 1), 0) == 4);
  CHECK(messageOf([&] { program(3, 1).check(); }) == "");
  CHECK(says(messageOf([&] { program(3, 0).check(); }), "have the same peer and channel 0"));
  CHECK(says(messageOf([&] { program(1, 1).check(); }), "already uses channel 0"));
  CHECK(says(messageOf([&] { program(-1, 0).check(); }), "names none (sendtb, recvtb)"));
}

TEST_CASE("dependences between blocks become semaphores") {
  const plan::NamedPlan plan = allPairsAllReduce(optionsOf(plan::AllReduce(4, 1, true))).compile();
  CHECK(plan.rankPlans[0].semaphores.count > 0);
  const auto has = [&](OperationKind kind) {
    return std::any_of(plan.operations.begin(), plan.operations.end(),
                       [&](const plan::Operation& operation) { return operation.kind == kind; });
  };
  CHECK(has(OperationKind::Acquire));
  CHECK(has(OperationKind::Release));
}

TEST_CASE("messages whose order differs at their ends take different channels") {
  // Rank 0 can send y at once, x only after it came back; rank 1 needs x first.
  MSCCLProgram program(optionsOf(plan::TestCollective(2, 2, 2)));
  ChunkRef x = program.chunk(0, BufferKind::Input, 0).copy(1, "a", 0).copy(0, "b", 0);
  ChunkRef arrived = x.copy(1, "c", 0);
  ChunkRef sum = program.chunk(1, BufferKind::Input, 0);
  sum = sum.copy(1, "d", 0);
  sum.reduce(arrived);
  sum.reduce(program.chunk(0, BufferKind::Input, 1));
  sum.copy(1, BufferKind::Output, 0);
  program.expect(1, 0, {{1, 0}, {0, 0}, {0, 1}});
  CHECK(messageOf([&] { program.check(); }) == "");
  program.expect(1, 1, {{1, 0}});
  CHECK(says(messageOf([&] { program.check(); }), "output chunk 1 of rank 1"));
}

TEST_CASE("a broadcast's root waits until its receivers have started") {
  for (const Protocol protocol : {Protocol::Simple, Protocol::LL}) {
    MSCCLProgram program(optionsOf(plan::Broadcast(3), protocol));
    program.chunk(0, BufferKind::Input, 0).copy(0, BufferKind::Output, 0);
    program.chunk(0, BufferKind::Input, 0).copy(1, BufferKind::Output, 0).copy(2);
    CHECK(messageOf([&] { program.check(); }) == "");
  }
}

TEST_CASE("packets of later chunks do not tell that a rank has started: short messages have none") {
  // Each of two chunks down a tree of its own, for all trees: a rank may send to another the second chunk only.
  constexpr int ranks = 4;
  std::vector<std::vector<int>> trees;  // the ranks in the order in which they receive, and whom each receives from
  for (int code = 0; code < 6 * 6; ++code) {
    std::vector<int> tree{1, 2, 3};
    for (int i = code % 6; i > 0; --i) std::next_permutation(tree.begin(), tree.end());
    tree.insert(tree.end(), {0, code / 6 % 2 == 0 ? 0 : tree[0], code / 12 == 0 ? 0 : tree[code / 12 - 1]});
    trees.push_back(tree);
  }
  int refused = 0;
  std::string why;
  for (std::size_t i = 0; i < trees.size() * trees.size(); ++i) {
    ProgramOptions options = optionsOf(plan::Broadcast(ranks, 2), Protocol::LL, i % 3 == 0 ? 2 : 1);
    options.interleavedReplication = i % 2 == 0;
    MSCCLProgram program(options);
    for (int c = 0; c < 2; ++c) {
      const std::vector<int>& tree = trees[c == 0 ? i / trees.size() : i % trees.size()];
      program.chunk(0, BufferKind::Input, c).copy(0, BufferKind::Output, c);
      for (int k = 0; k < 3; ++k)
        program.chunk(tree[k + 3], BufferKind::Output, c).copy(tree[k], BufferKind::Output, c);
    }
    const std::string message = messageOf([&] { program.check(); });
    if (!message.empty()) {
      ++refused;
      why = message;
    }
  }
  CHECK_MESSAGE(refused == 0, why);
  // All chunks of a message of several are sent with the first.
  for (const int chunks : {1, 2}) {
    const plan::NamedPlan plan = allPairsAllReduce(optionsOf(plan::AllReduce(3, chunks, true), Protocol::LL)).compile();
    for (const plan::Operation& operation : plan.operations) CHECK(operation.kind != OperationKind::Signal);
  }
}

TEST_CASE("what is copied back is where it was") {
  MSCCLProgram program(optionsOf(plan::TestCollective(2, 1, 1)));
  const ChunkRef there = program.chunk(1, BufferKind::Input, 0).copy(0, "there", 0).copy(0, "back", 0);
  there.copy(0, "there", 0).copy(0, BufferKind::Output, 0);
  program.expect(0, 0, {{1, 0}});
  const plan::NamedPlan plan = plan::verified(program.compile());
  const std::string text = plan::toText(plan);
  CHECK_MESSAGE(text.find("scratch[0] -> output[0]") != std::string::npos, text);
}

TEST_CASE("between nodes messages go through port channels") {
  for (const Protocol protocol : {Protocol::Simple, Protocol::LL}) {
    ProgramOptions options = optionsOf(plan::AllReduce(4, 1, true), protocol);
    options.ranksPerNode = 2;
    const MSCCLProgram program = ringAllReduce(options);
    const plan::NamedPlan plan = program.compile();
    int ports = 0;
    for (const plan::Operand& operand : plan.operands) ports += operand.access == plan::Access::Port;
    CHECK(ports > 0);
    for (const plan::Operand& operand : plan.operands) {
      if (operand.access == plan::Access::Memory) CHECK(operand.rank / 2 < 2);
    }
    CHECK(messageOf([&] { program.check(); }) == "");
  }
}

TEST_CASE("a program without operations is refused") {
  const MSCCLProgram program({.name = "empty", .collective = plan::AllReduce(2)});
  CHECK(says(messageOf([&] { program.compile(); }), "program empty: it has no operations"));
  CHECK(messageOf([&] { MSCCLProgram({.name = "x", .collective = plan::AllReduce(1, 1, true)}).check(); }) == "");
}

TEST_CASE("stale references and other misuse are errors that name the line") {
  const Origin line{"ring.py:9"};
  MSCCLProgram program(optionsOf(plan::AllReduce(2)));
  const ChunkRef own = program.chunk(0, BufferKind::Input, 0);
  ChunkRef copied = own.copy(1, "scratch", 0);
  ChunkRef sum = program.chunk(0, BufferKind::Input, 1).copy(0, "sum", 0);
  program.chunk(0, BufferKind::Input, 1).copy(1, "scratch", 0);
  const auto fails = [&](auto&& f, const char* why) {
    const std::string message = messageOf(f);
    CHECK_MESSAGE((says(message, "ring.py:9: ") && says(message, why)), message);
  };
  fails([&] { copied.copy(0, "x", 0, {}, line); }, "a stale reference: chunk 0 of buffer scratch of rank 1");
  fails([&] { sum.reduce(copied, {}, line); }, "a stale reference");
  fails([&] { program.chunk(0, BufferKind::Output, 0, 1, line); }, "holds nothing yet");
  fails([&] { program.chunk(0, BufferKind::Input, 2, 1, line); }, "which has 2");
  fails([&] { program.chunk(2, BufferKind::Input, 0, 1, line); }, "rank 2 does not exist");
  fails([&] { own.copy(2, "x", 0, {}, line); }, "rank 2 does not exist");
  fails([&] { own.copy(1, BufferKind::Output, 5, {}, line); }, "which has 2");
  fails([&] { own.split(2, line); }, "cannot be split into 2");
  fails([&] { own.group(sum, line); }, "different buffers");
  fails([&] { program.expect(0, 0, {}, line); }, "expect() is for custom ones");
  fails([&] { own.copy(1, "y", 0, {.sendtb = 1024}, line); }, "sendtb is 1024; blocks are numbered from 0 to 1023");
  fails([&] { own.copy(1, "y", 0, {.recvtb = -2}, line); }, "recvtb is -2");
  fails([&] { own.copy(1, "y", 0, {.ch = 1 << 15}, line); }, "ch is 32768; channels are numbered from 0 to 32767");
  fails([&] { own.copy(1, "y", 2147483647, {}, line); }, "the most are 4194304");
  fails([&] { program.holds(2, "sum", 0, 1, line); }, "rank 2 does not exist");
  fails([&] { program.holds(0, "sum", -1, 1, line); }, "numbered from 0");
  fails([&] { program.holds(0, "sum", 0, 0, line); }, "a reference to 0 chunks");
  fails([&] { program.holds(0, BufferKind::Input, 2, 1, line); }, "which has 2");
  fails([&] { MSCCLProgram({.name = "x", .collective = plan::AllReduce(4000)}, line); },
        "have 16000000 chunks; at most 4194304");
  // The accumulator itself stays valid.
  sum.reduce(own);
  CHECK(messageOf([&] { sum.reduce(own); }) == "");
  CHECK(program.holds(0, "sum", 0));
  CHECK(!program.holds(0, "sum", 1));
  CHECK(!program.holds(0, "none", 0));
  CHECK(!program.holds(0, "sum", 2147483647));
  // Its summands are of different positions in the message.
  const std::string message = messageOf([&] { program.check(); });
  CHECK_MESSAGE(says(message, "different positions in the message"), message);
}

}  // namespace
}  // namespace mscclpp::msccl
