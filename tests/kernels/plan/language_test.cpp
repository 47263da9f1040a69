// Programs of MSCCL++'s language: what they compile to, that it is right, and what is refused.
#include "mscclpp/kernels/plan/language.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/plan/draft.hpp"
#include "message_of.hpp"
#include "mscclpp/kernels/plan/json.hpp"
#include "mscclpp/kernels/plan/verify.hpp"

namespace mscclpp::language {
namespace {

using plan::Draft;
using plan::draftOf;
using plan::OperationKind;
using plan::Step;
using test::messageOf;
using test::says;

AlgoSpec specOf(const Collective& collective, int instances = 1) {
  return {.name = "test", .collective = collective, .worldSize = collective.ranks, .instances = instances};
}

std::vector<Step> blockOf(const plan::NamedPlan& plan, int rank, int block) {
  return draftOf(plan).ranks[rank].blocks[block];
}

std::vector<OperationKind> kindsOf(const std::vector<Step>& steps) {
  std::vector<OperationKind> kinds;
  for (const Step& step : steps) kinds.push_back(step.operation.kind);
  return kinds;
}

/// All-reduce in packets: each rank sends its whole input to all, and sums up.
CollectiveProgram oneShotPackets(int ranks, int instances, bool fusion = true) {
  AlgoSpec spec = specOf(plan::AllReduce(ranks), instances);
  spec.protocol = "LL";
  spec.useDoubleScratchBuffer = true;
  spec.instrFusion = fusion;
  CollectiveProgram program(spec);
  std::vector<Buffer> scratch;
  for (int r = 0; r < ranks; ++r) scratch.emplace_back(program, r, ranks * ranks);
  for (int r = 0; r < ranks; ++r) {
    const Chunk input = Rank(program, r).getInputBuffer().slice(0, ranks);
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == r) continue;
      MemoryChannel(program, peer, r).putPackets(scratch[peer].slice(r * ranks, (r + 1) * ranks), input, 0);
    }
    std::vector<Chunk> others;
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != r) others.push_back(scratch[r].slice(peer * ranks, (peer + 1) * ranks));
    }
    Rank rank(program, r);
    rank.reduce(input, others, 0, rank.getOutputBuffer().slice(0, ranks), true);
  }
  return program;
}

/// The program of MSCCL++'s guide: reduction and broadcast by the switch.
CollectiveProgram throughSwitch(int ranks, int instances = 1, bool fusion = true, bool relaxed = true) {
  AlgoSpec spec = specOf(plan::AllReduce(ranks, 1, true), instances);
  spec.instrFusion = fusion;
  CollectiveProgram program(spec);
  std::vector<int> all;
  for (int r = 0; r < ranks; ++r) all.push_back(r);
  SwitchChannel channel(program, all, BufferType::Input);
  std::map<std::pair<int, int>, MemoryChannel> channels;
  for (int gpu = 0; gpu < ranks; ++gpu) {
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != gpu) channels.emplace(std::pair{peer, gpu}, MemoryChannel(program, peer, gpu));
    }
  }
  const auto exchange = [&](SyncType signal, SyncType wait) {
    for (int gpu = 0; gpu < ranks; ++gpu) {
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer != gpu) channels.at({peer, gpu}).signal(0, signal, relaxed);
      }
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer != gpu) channels.at({peer, gpu}).wait(0, wait, relaxed);
      }
    }
  };
  exchange(SyncType::Both, SyncType::After);
  for (int gpu = 0; gpu < ranks; ++gpu) {
    const Buffer input = Rank(program, gpu).getInputBuffer();
    channel.atRank(gpu).reduce(gpu, 1, input[gpu], 0);
    channel.atRank(gpu).broadcast(input[gpu], gpu, 1, 0);
  }
  exchange(SyncType::Before, SyncType::Both);
  return program;
}

TEST_CASE("a one-shot all-reduce in packets is proven, in any number of instances") {
  for (const int instances : {1, 2, 3}) {
    const plan::NamedPlan plan = oneShotPackets(3, instances).compile();
    CHECK(plan.rankPlans[0].blocks.count == instances);
    CHECK(plan.chunksPerPart == 3 * instances);
    CHECK(messageOf([&] { plan::verified(plan); }) == "");
    // Instances are made once, and compiling changes nothing.
    CHECK(plan::toJson(oneShotPackets(3, instances).compile()) == plan::toJson(plan));
  }
  CollectiveProgram program = oneShotPackets(3, 2);
  CHECK(program.toJson() == program.toJson());
}

TEST_CASE("puts of one source are one transfer") {
  CHECK(kindsOf(blockOf(oneShotPackets(4, 1).compile(), 0, 0)) ==
        std::vector{OperationKind::Transfer, OperationKind::Transfer});
  CHECK(blockOf(oneShotPackets(4, 1, false).compile(), 0, 0).size() == 4);
  CHECK(messageOf([&] { plan::verified(oneShotPackets(4, 1, false).compile()); }) == "");
}

TEST_CASE("a plan of the language goes through JSON unchanged") {
  const plan::NamedPlan plan = oneShotPackets(4, 2).compile();
  const Draft draft = draftOf(plan), again = draftOf(plan::fromJson(plan::toJson(plan)));
  for (int r = 0; r < 4; ++r) {
    REQUIRE(again.ranks[r].blocks.size() == draft.ranks[r].blocks.size());
    for (std::size_t b = 0; b < draft.ranks[r].blocks.size(); ++b) {
      for (std::size_t i = 0; i < draft.ranks[r].blocks[b].size(); ++i) {
        Step step = draft.ranks[r].blocks[b][i];
        step.operation.origin = -1;
        CHECK(again.ranks[r].blocks[b][i] == step);
      }
    }
  }
}

TEST_CASE("a switch's reduction and broadcast are one operation") {
  const plan::NamedPlan plan = throughSwitch(4).compile();
  const auto steps = blockOf(plan, 1, 0);
  using K = OperationKind;
  CHECK(kindsOf(steps) ==
        std::vector{K::Signal, K::Sync, K::Wait, K::Sync, K::Transfer, K::Sync, K::Signal, K::Sync, K::Wait});
  CHECK(steps[0].references.size() == 3);
  CHECK(steps[4].destinations.size() == 1);
  CHECK(messageOf([&] { plan::verified(plan); }) == "");
  CHECK(messageOf([&] { plan::verified(throughSwitch(4, 4, true, false).compile()); }) == "");
  CHECK(messageOf([&] { plan::verified(throughSwitch(4, 1, false).compile()); }) == "");
  const auto json = nlohmann::json::parse(plan::toJson(plan));
  CHECK(json["gpus"][0]["threadblocks"][0]["ops"][4]["name"] == "glres");
}

TEST_CASE("signals stay relaxed only where nothing relies on their order") {
  // The peers' results would not be visible.
  for (const Step& step : blockOf(throughSwitch(2).compile(), 0, 0)) CHECK(!step.operation.relaxed);
  // Credits: the peer's reads are over, nothing of what it wrote is read.
  const auto credits = [](bool relaxed) {
    CollectiveProgram program(specOf(plan::TestCollective(2, 1, 1)));
    Buffer slot(program, 1, 1);
    MemoryChannel forth(program, 1, 0), back(program, 0, 1);
    forth.put(slot[0], Rank(program, 0).getInputBuffer()[0], 0);
    forth.signal(0);
    back.wait(0);
    Rank(program, 1).copy(Rank(program, 1).getOutputBuffer()[0], slot[0], 0);
    back.signal(0, SyncType::Both, relaxed);
    forth.wait(0, SyncType::Both, relaxed);
    return program.compile();
  };
  CHECK(messageOf([&] { plan::verified(credits(true)); }) == "");
  const auto last = blockOf(credits(true), 0, 0).back();
  CHECK(last.operation.kind == OperationKind::Wait);
  CHECK(last.operation.relaxed);
}

/// A ring of all-gather: each block forwards what it got.
CollectiveProgram ring(int ranks, plan::Access access, std::uint64_t unit = 0) {
  CollectiveProgram program(specOf(plan::AllGather(ranks)));
  const auto forward = [&](auto& channels) {
    for (int r = 0; r < ranks; ++r) {
      Rank rank(program, r);
      rank.copy(rank.getOutputBuffer()[r], rank.getInputBuffer()[0], 0);
    }
    // Everybody has started: outputs may be written.
    for (int r = 0; r < ranks; ++r) channels[2 * r + 1].signal(0);
    for (int r = 0; r < ranks; ++r) channels[2 * r].wait(0);
    for (int step = 0; step < ranks - 1; ++step) {
      for (int r = 0; r < ranks; ++r) {
        const int next = (r + 1) % ranks, part = (r - step + ranks) % ranks;
        channels[2 * r].put(Rank(program, next).getOutputBuffer()[part], Rank(program, r).getOutputBuffer()[part], 0);
        channels[2 * r].signal(0);
      }
      for (int r = 0; r < ranks; ++r) channels[2 * r + 1].wait(0);
    }
  };
  std::optional<LoopIterationContext> loop;
  if (unit > 0) loop.emplace(program, unit, 1);
  if (access == plan::Access::Memory) {
    std::vector<MemoryChannel> channels;
    for (int r = 0; r < ranks; ++r) {
      channels.emplace_back(program, (r + 1) % ranks, r);
      channels.emplace_back(program, (r + ranks - 1) % ranks, r);
    }
    forward(channels);
  } else {
    std::vector<PortChannel> channels;
    for (int r = 0; r < ranks; ++r) {
      channels.emplace_back(program, (r + 1) % ranks, r);
      channels.emplace_back(program, (r + ranks - 1) % ranks, r);
    }
    forward(channels);
    for (int r = 0; r < ranks; ++r) channels[2 * r].flush(0);
  }
  return program;
}

TEST_CASE("rings over memory and port channels, in loops too, are proven") {
  for (const int ranks : {3, 4}) {
    CHECK(messageOf([&] { plan::verified(ring(ranks, plan::Access::Memory).compile()); }) == "");
    CHECK(messageOf([&] { plan::verified(ring(ranks, plan::Access::Port).compile()); }) == "");
    CHECK(messageOf([&] { plan::verified(ring(ranks, plan::Access::Memory, 4096).compile()); }) == "");
  }
  const auto steps = blockOf(ring(3, plan::Access::Memory, 4096).compile(), 0, 0);
  CHECK(steps.front().operation.kind == OperationKind::LoopBegin);
  CHECK(steps.front().operation.unitBytes == 4096);
  CHECK(steps.back().operation.kind == OperationKind::LoopEnd);
}

TEST_CASE("accesses of a block to the same chunk are ordered where the program is not") {
  AlgoSpec spec = specOf(plan::AllReduce(1, 4));
  for (const bool autoSync : {true, false}) {
    spec.autoSync = autoSync;
    spec.instrFusion = false;
    CollectiveProgram program(spec);
    Rank rank(program, 0);
    const Buffer input = rank.getInputBuffer(), output = rank.getOutputBuffer();
    Buffer scratch(program, 0, 4);
    rank.copy(scratch.slice(0, 4), input.slice(0, 4), 0);
    rank.copy(output.slice(1, 3), scratch.slice(1, 3), 0);
    rank.copy(output[0], scratch[0], 0);  // neither reads nor writes what the last one did
    rank.copy(output[3], scratch[3], 0);
    const auto kinds = kindsOf(blockOf(program.compile(), 0, 0));
    CHECK(std::count(kinds.begin(), kinds.end(), OperationKind::Sync) == (autoSync ? 1 : 0));
    if (autoSync) CHECK(kinds[1] == OperationKind::Sync);
    CHECK((messageOf([&] { plan::verified(program.compile()); }) == "") == autoSync);
  }
}

TEST_CASE("sums and copies of what is stored are fused") {
  CollectiveProgram program(specOf(plan::AllReduce(2)));
  Buffer scratch(program, 0, 8), peer(program, 1, 8);
  Rank rank(program, 0);
  const Buffer input = rank.getInputBuffer(), output = rank.getOutputBuffer();
  rank.reduce(input[0], {scratch[0]}, 0, output[0]);
  rank.reduce(output[0], {scratch[1]}, 0);
  MemoryChannel channel(program, 1, 0);
  channel.put(peer[0], output[0], 0);
  rank.copyPackets(scratch[5], output[0], 0);
  const auto steps = blockOf(program.compile(), 0, 0);
  REQUIRE(steps.size() == 1);
  CHECK(steps[0].sources.size() == 3);
  CHECK(steps[0].destinations.size() == 3);
}

TEST_CASE("what would overwrite its own sources is not fused") {
  CollectiveProgram program(specOf(plan::AllReduce(2)));
  Buffer scratch(program, 0, 4);
  Rank rank(program, 0);
  const Buffer input = rank.getInputBuffer(), output = rank.getOutputBuffer();
  rank.reduce(input.slice(0, 2), {scratch.slice(0, 2)}, 0, output.slice(0, 2));
  rank.copy(scratch.slice(1, 3), output.slice(0, 2), 0);
  const auto steps = blockOf(program.compile(), 0, 0);
  REQUIRE(steps.size() == 3);
  CHECK(steps[1].operation.kind == OperationKind::Sync);
}

TEST_CASE("groups of thread blocks share a transfer") {
  CollectiveProgram program(specOf(plan::AllReduce(1, 4)));
  Rank rank(program, 0);
  rank.copy(rank.getOutputBuffer().slice(0, 4), rank.getInputBuffer().slice(0, 4), ThreadBlockGroup({2, 0}));
  const plan::NamedPlan plan = program.compile();
  CHECK(blockOf(plan, 0, 0)[0].operation.share == 1);
  CHECK(blockOf(plan, 0, 2)[0].operation.share == 0);
  CHECK(blockOf(plan, 0, 2)[0].operation.shares == 2);
  CHECK(messageOf([&] { plan::verified(plan); }) == "");
}

TEST_CASE("semaphores and barriers are replicated with the blocks") {
  AlgoSpec spec = specOf(plan::AllReduce(1, 2), 3);
  CollectiveProgram program(spec);
  Rank rank(program, 0);
  Semaphore ready(program, 0, 0);
  Buffer scratch(program, 0, 2);
  rank.copy(scratch[0], rank.getInputBuffer()[0], 0);
  ready.release(0);
  ready.acquire(1);
  rank.copy(rank.getOutputBuffer()[0], scratch[0], 1);
  rank.copy(scratch[1], rank.getInputBuffer()[1], 0);
  rank.barrier({0, 1});
  rank.copy(rank.getOutputBuffer()[1], scratch[1], 1);
  const plan::NamedPlan plan = program.compile();
  CHECK(plan.rankPlans[0].blocks.count == 6);
  CHECK(plan.rankPlans[0].semaphores.count == 3);
  const auto kinds = kindsOf(blockOf(plan, 0, 0));
  CHECK(messageOf([&] { plan::verified(plan); }) == "");
}

TEST_CASE("ReplicationPolicy::None makes the program once") {
  AlgoSpec spec = specOf(plan::AllReduce(1), 4);
  spec.replicationPolicy = ReplicationPolicy::None;
  CollectiveProgram program(spec);
  Rank rank(program, 0);
  rank.copy(rank.getOutputBuffer()[0], rank.getInputBuffer()[0], 0);
  CHECK(program.compile().rankPlans[0].blocks.count == 1);
}

TEST_CASE("errors name the line of the program") {
  const Origin line{"ring.py:7"};
  const AlgoSpec spec = specOf(plan::AllReduce(2));
  CollectiveProgram program(spec);
  Rank rank(program, 0), other(program, 1);
  const Buffer input = rank.getInputBuffer();
  const auto fails = [&](auto&& f, const char* why) {
    const std::string message = messageOf(f);
    CHECK_MESSAGE((says(message, "ring.py:7: ") && says(message, why)), message);
  };
  fails([&] { Rank(program, 2, line); }, "rank 2 does not exist");
  fails([&] { input.slice(1, 3, line); }, "of a buffer of 2 chunks: a slice has one or more of its chunks 0 to 1");
  fails([&] { Buffer(program, 0, 0, line); }, "a buffer of 0 chunks");
  fails([&] { rank.copy(input[0], other.getInputBuffer()[0], 0, line); }, "the chunk is rank 1's");
  fails([&] { rank.copy(input[0], input.slice(0, 2), 0, line); }, "chunks of sizes 2 and 1");
  fails([&] { rank.copyPackets(input[0], input[1], 0, line); }, "packets lie in scratch");
  fails([&] { rank.copy(input[0], input[1], -1, line); }, "thread block -1");
  fails([&] { rank.copy(input[0], input[1], 1024, line); }, "thread block 1024: blocks are numbered from 0 to 1023");
  fails([&] { rank.reduce(input[0], {}, 0, {}, false, line); }, "no further chunks");
  fails([&] { rank.barrier({1, 1}, line); }, "a thread block is listed twice; list each once");
  fails([&] { MemoryChannel(program, 0, 0, line); }, "a channel of rank 0 to itself: name two ranks");
  fails([&] { SwitchChannel(program, {0}, BufferType::Input, line); }, "at least two ranks");
  fails([&] { SwitchChannel(program, {0, 1}, BufferType::Input).atRank(2, line); }, "rank 2 is not among");
  fails([&] { SwitchChannel(program, {0, 1, 0}, BufferType::Input, line); }, "lists a rank twice; list each once");
  fails([&] { Semaphore(program, 0, -1, line); }, "initial value -1; pass 0 or more");
  fails(
      [&] {
        LoopIterationContext loop(program, 64, 1);
        LoopIterationContext nested(program, 64, 1, line);
      },
      "loops cannot be nested");
  AlgoSpec wrong = spec;
  wrong.instances = 0;
  fails([&] { CollectiveProgram(wrong, line); }, "instances is 0");
  wrong.instances = 129;
  fails([&] { CollectiveProgram(wrong, line); }, "instances is 129; it is 1 to 128");
  wrong = spec;
  wrong.protocol = "LL8";
  fails([&] { CollectiveProgram(wrong, line); }, "protocol is \"LL8\"");
  wrong = spec;
  wrong.worldSize = 4;
  fails([&] { CollectiveProgram(wrong, line); }, "the program has 4 ranks, its collective 2");
  fails([&] { CollectiveProgram(specOf(plan::Broadcast(5000)), line); }, "5000 ranks; the most are 4096");
  fails([&] { CollectiveProgram(specOf(plan::AllReduce(4000)), line); }, "have 16000000 chunks; at most 4194304");
  fails([&] { CollectiveProgram(specOf(plan::AllToAll(4096, 1 << 30)), line); }, "at most 4194304 can be checked");
  CHECK(says(Origin::current().text, "language_test.cpp:"));
}

TEST_CASE("an empty program, and signals without waits, are refused") {
  CollectiveProgram program(specOf(plan::AllReduce(2)));
  CHECK(says(messageOf([&] { program.compile(); }), "it has no operations"));
  MemoryChannel forth(program, 1, 0, {"ring.py:3"}), back(program, 0, 1, {"ring.py:4"});
  forth.signal(0, SyncType::None, false, {"ring.py:5"});
  forth.signal(2, SyncType::None, false, {"ring.py:6"});
  back.wait(1, SyncType::None, false, {"ring.py:7"});
  const std::string message = messageOf([&] { program.compile(); });
  CHECK_MESSAGE(
      says(message,
           "ring.py:3: the memory channel of rank 0 to rank 1 is signalled 2 times (the last in block 2, made "
           "at ring.py:6), and rank 1 waits 1 time (in block 1, made at ring.py:7) on its channel to rank 0"),
      message);
  back.wait(0);
  CHECK(messageOf([&] { program.compile(); }) == "");
  back.wait(0);
  CHECK(says(messageOf([&] { program.compile(); }), "rank 1 waits 3 times"));
}

TEST_CASE("a program with more operations than can be checked is refused while it is written") {
  CollectiveProgram program(specOf(plan::AllReduce(2)));
  Rank rank(program, 0);
  const Chunk chunk = rank.getInputBuffer()[0];
  const std::string message = messageOf([&] {
    for (int i = 0; i <= 1 << 18; ++i) rank.copy(chunk, chunk, 0, {"loop.py:1"});
  });
  CHECK_MESSAGE(says(message, "loop.py:1: the program has more than 262144 operations"), message);
}

TEST_CASE("scratch that the next call overwrites too early is told as that, with the write's line") {
  // Rank 0 sends in each call; nothing tells it that rank 1 has read what it sent before.
  CollectiveProgram program(specOf(plan::TestCollective(2, 1, 1)));
  Buffer scratch(program, 1, 1);
  MemoryChannel forth(program, 1, 0), back(program, 0, 1);
  forth.put(scratch[0], Rank(program, 0).getInputBuffer()[0], 0, {"put.py:1"});
  forth.signal(0);
  back.wait(0);
  Rank(program, 1).copy(Rank(program, 1).getOutputBuffer()[0], scratch[0], 0, {"put.py:2"});
  const std::string message = messageOf([&] { plan::verified(program.compile()); });
  CHECK_MESSAGE(says(message, "the operation overwrites scratch chunk 0 of rank 1, which rank 1, block 0"), message);
  CHECK_MESSAGE(says(message,
                     "(in call 2 of successive calls); at rank 0, block 0, operation 0 (transfer), made at "
                     "put.py:1"),
                message);
}

TEST_CASE("what the check finds names the line") {
  CollectiveProgram program(specOf(plan::TestCollective(2, 1, 1)));
  Buffer scratch(program, 1, 1);
  MemoryChannel forth(program, 1, 0);
  forth.put(scratch[0], Rank(program, 0).getInputBuffer()[0], 0, {"put.py:12"});
  Rank(program, 1).copy(Rank(program, 1).getOutputBuffer()[0], scratch[0], 0, {"put.py:13"});
  const std::string message = messageOf([&] { plan::verified(program.compile()); });
  CHECK_MESSAGE((says(message, "put.py:12") && says(message, "put.py:13") && says(message, "nothing orders")), message);
}

}  // namespace
}  // namespace mscclpp::language
