// The checker finds no fault in plans that are right, and each kind of fault in plans that are not.
#include "mscclpp/plan/check.hpp"

#include <doctest/doctest.h>

#include <string>

#include "all_pairs.hpp"
#include "mscclpp/plan/fault_message.hpp"

namespace mscclpp::plan {
namespace {

constexpr Plan threeRanks() {
  return twoShotAllReduce(3);
}
static_assert(isProven<threeRanks>);

FaultKind faultOfPlan(const Plan& plan) {
  const Fault fault = check(plan);
  if (fault) CHECK(describe(plan, fault).size() > 20);
  return fault.kind;
}

/// An operation that does nothing, in place of one that is left out.
Operation nothing() {
  return {.kind = OperationKind::Signal};
}

/// Two ranks exchange their inputs, of one chunk, through the body.
template <class Body>
Plan exchange(Header header, Body&& body) {
  header.collective = CollectiveKind::AllGather;
  header.ranks = 2;
  Program program(header);
  for (int rank = 0; rank < 2; ++rank) body(program, rank, 1 - rank);
  return program.finish();
}
void copyOwn(Program& program, int rank) {
  program.block(rank, 0).copy(input(rank, 0), output(rank, rank));
}

TEST_CASE("all-pairs all-reduces of 2 to 64 ranks are right") {
  for (const int ranks : {2, 3, 4, 8, 16, 64}) {
    CHECK(faultOfPlan(twoShotAllReduce(ranks)) == FaultKind::None);
    CHECK(faultOfPlan(oneShotAllReduce(ranks)) == FaultKind::None);
  }
  CHECK(faultOfPlan(twoShotAllReduce(8, 8)) == FaultKind::None);
}

TEST_CASE("a plan in which any one operation is missing is wrong, but for the last sync") {
  const Plan plan = twoShotAllReduce(3);
  for (int i = 0; i < countOf(plan.operations); ++i) {
    CAPTURE(i);
    Plan mutant = plan;
    mutant.operations[i] = nothing();
    CHECK(faultOfPlan(mutant) != FaultKind::None);
  }
}

TEST_CASE("signals and waits order data only if they are not relaxed") {
  const Plan plan = twoShotAllReduce(3);
  for (int i = 0; i < countOf(plan.operations); ++i) {
    const OperationKind kind = plan.operations[i].kind;
    if (kind != OperationKind::Signal && kind != OperationKind::Wait) continue;
    CAPTURE(i);
    Plan mutant = plan;
    mutant.operations[i].relaxed = true;
    CHECK(faultOfPlan(mutant) == FaultKind::ReadBeforeWrite);
  }
}

TEST_CASE("wrong chunks give wrong results or conflicts") {
  const Plan plan = twoShotAllReduce(3);
  for (int i = 0; i < countOf(plan.operands); ++i) {
    CAPTURE(i);
    Plan mutant = plan;
    mutant.operands[i].first = (mutant.operands[i].first + 1) % 3;
    CHECK(faultOfPlan(mutant) != FaultKind::None);
    mutant.operands[i].first = 3;
    CHECK(faultOfPlan(mutant) == FaultKind::ChunkOutOfRange);
    mutant.operands[i].first = -1;
    CHECK(faultOfPlan(mutant) == FaultKind::ChunkOutOfRange);
  }
}

TEST_CASE("packets need no signals, but room of their own for two calls") {
  CHECK(faultOfPlan(oneShotAllReduce(4)) == FaultKind::None);
  const Fault fault = check(oneShotAllReduce(4, false));
  CHECK(fault.kind == FaultKind::WriteBeforeRead);
  CHECK(fault.otherBlock == 0);
  CHECK(fault.buffer == BufferKind::Scratch);
}

TEST_CASE("packets are written once a call") {
  const Plan plan = exchange({.doubleScratch = true}, [](Program& program, int rank, int peer) {
    copyOwn(program, rank);
    program.block(rank, 0)
        .copy(input(rank, 0), scratch(peer, 0).packets())
        .copy(input(rank, 0), scratch(peer, 0).packets())
        .copy(scratch(rank, 0).packets(), output(rank, peer));
  });
  const FaultKind kind = faultOfPlan(plan);
  CHECK((kind == FaultKind::PacketWrittenTwice || kind == FaultKind::WriteBeforeWrite));
}

TEST_CASE("packets order what has been read, not what has been written") {
  // The data is stored plainly, and only a packet tells that it was.
  const Plan plan = exchange({.doubleScratch = true}, [](Program& program, int rank, int peer) {
    copyOwn(program, rank);
    program.block(rank, 0)
        .copy(input(rank, 0), scratch(peer, 0))
        .copy(input(rank, 0), scratch(peer, 1).packets())
        .copy(scratch(rank, 1).packets(), scratch(rank, 2))
        .copy(scratch(rank, 0), output(rank, peer));
  });
  CHECK(faultOfPlan(plan) == FaultKind::ReadBeforeWrite);
}

TEST_CASE("a chunk holds packets or plain data") {
  const Plan plan = exchange({}, [](Program& program, int rank, int peer) {
    copyOwn(program, rank);
    program.block(rank, 0).copy(input(rank, 0), scratch(peer, 0).packets()).copy(scratch(rank, 0), output(rank, peer));
  });
  CHECK(faultOfPlan(plan) == FaultKind::MixedForms);
}

TEST_CASE("stores into a peer's output wait until its caller has read the last result") {
  const auto make = [](bool withBarrier) {
    return exchange({}, [&](Program& program, int rank, int peer) {
      copyOwn(program, rank);
      auto block = program.block(rank, 0);
      if (withBarrier) block.signal(peer).wait(peer);
      block.copy(input(rank, 0), output(peer, rank)).signal(peer).wait(peer);
    });
  };
  CHECK(faultOfPlan(make(true)) == FaultKind::None);
  const Fault fault = check(make(false));
  CHECK((fault.kind == FaultKind::WriteBeforeRead || fault.kind == FaultKind::ReadBeforeWrite));
  CHECK((fault.block == -1 || fault.otherBlock == -1));  // the caller
}

TEST_CASE("the same through port channels, whose sources are flushed") {
  const auto make = [](bool flush) {
    return exchange({}, [&](Program& program, int rank, int peer) {
      copyOwn(program, rank);
      auto block = program.block(rank, 0);
      block.signalThroughPort(peer).waitThroughPort(peer);
      block.copyThroughPort(input(rank, 0), output(peer, rank)).signalThroughPort(peer);
      if (flush) block.flush(peer);
      block.waitThroughPort(peer);
    });
  };
  CHECK(faultOfPlan(make(true)) == FaultKind::None);
  CHECK(faultOfPlan(make(false)) == FaultKind::WriteBeforeRead);  // the caller writes its next input
}

TEST_CASE("blocks of a rank are ordered by barriers") {
  const auto make = [](int blocksInBarrier) {
    Program program({.collective = CollectiveKind::AllReduce, .ranks = 1});
    program.block(0, 0).copy(input(0, 0), scratch(0, 0));
    if (blocksInBarrier > 0)
      for (int b = 0; b < 2; ++b) program.block(0, b).barrier(0, blocksInBarrier);
    program.block(0, 1).copy(scratch(0, 0), output(0, 0));
    return program.finish();
  };
  CHECK(faultOfPlan(make(2)) == FaultKind::None);
  CHECK(faultOfPlan(make(3)) == FaultKind::WrongBarrier);
  const FaultKind without = faultOfPlan(make(0));
  CHECK((without == FaultKind::ReadBeforeWrite || without == FaultKind::Uninitialised));
}

TEST_CASE("blocks of a rank are ordered by device semaphores") {
  const auto make = [](int releases, int consumers) {
    Program program({.collective = CollectiveKind::AllReduce, .ranks = 1, .chunksPerPart = 2});
    const int semaphore = program.semaphore(0, 0), back = program.semaphore(0, 1);
    auto producer = program.block(0, 0);
    producer.acquire(back).copy(input(0, 0, 2), scratch(0, 0, 2));
    for (int i = 0; i < releases; ++i) producer.release(semaphore);
    for (int b = 1; b <= consumers; ++b)
      program.block(0, b).acquire(semaphore).copy(scratch(0, b - 1), output(0, b - 1));
    program.block(0, 1).release(back);
    if (consumers == 1) program.block(0, 1).copy(scratch(0, 1), output(0, 1));
    return program.finish();
  };
  CHECK(faultOfPlan(make(1, 1)) == FaultKind::None);
  CHECK(faultOfPlan(make(0, 1)) == FaultKind::Deadlock);
  CHECK(faultOfPlan(make(2, 1)) != FaultKind::None);
  CHECK(faultOfPlan(make(2, 2)) == FaultKind::AmbiguousCounter);  // which release each of them gets
}

TEST_CASE("several blocks may signal one counter only if all signals are waited for") {
  const auto make = [](int waits, int signals) {
    Program program({.collective = CollectiveKind::AllReduce, .ranks = 1, .chunksPerPart = 2});
    const int semaphore = program.semaphore(0, 0);
    for (int b = 0; b < 2; ++b) {
      auto producer = program.block(0, b);
      producer.copy(input(0, b), scratch(0, b));
      for (int i = 0; i < signals; ++i) producer.release(semaphore);
    }
    auto consumer = program.block(0, 2);
    for (int i = 0; i < waits; ++i) consumer.acquire(semaphore);
    consumer.copy(scratch(0, 0, 2), output(0, 0, 2));
    for (int i = waits; i < 2 * signals; ++i) consumer.acquire(semaphore);
    return program.finish();
  };
  CHECK(faultOfPlan(make(2, 1)) == FaultKind::None);
  const FaultKind kind = faultOfPlan(make(1, 1));
  CHECK((kind == FaultKind::ReadBeforeWrite || kind == FaultKind::AmbiguousCounter));
}

TEST_CASE("signals without waits, and waits without signals") {
  const auto make = [](int signals, int waits) {
    return exchange({}, [&](Program& program, int rank, int peer) {
      copyOwn(program, rank);
      auto block = program.block(rank, 0);
      block.copy(input(rank, 0), scratch(peer, 0));
      for (int i = 0; i < signals; ++i) block.signal(peer);
      for (int i = 0; i < waits; ++i) block.wait(peer);
      block.copy(scratch(rank, 0), output(rank, peer)).signal(peer).wait(peer);
    });
  };
  CHECK(faultOfPlan(make(1, 1)) == FaultKind::None);
  CHECK(faultOfPlan(make(2, 2)) == FaultKind::None);
  CHECK(faultOfPlan(make(2, 1)) != FaultKind::None);
  CHECK(faultOfPlan(make(1, 2)) == FaultKind::Deadlock);
}

TEST_CASE("loops") {
  const auto make = [](bool waitInLoop) {
    return exchange({}, [&](Program& program, int rank, int peer) {
      copyOwn(program, rank);
      auto block = program.block(rank, 0);
      block.beginLoop(4096).copy(input(rank, 0), scratch(peer, 0)).signal(peer);
      if (waitInLoop) block.wait(peer).copy(scratch(rank, 0), output(rank, peer));
      block.endLoop();
      if (!waitInLoop) block.wait(peer).copy(scratch(rank, 0), output(rank, peer));
      block.signal(peer).wait(peer);
    });
  };
  CHECK(faultOfPlan(make(true)) == FaultKind::None);
  CHECK(faultOfPlan(make(false)) != FaultKind::None);  // right for one iteration only

  Program different({.collective = CollectiveKind::AllReduce, .ranks = 1});
  different.block(0, 0).beginLoop(64).copy(input(0, 0), scratch(0, 0)).endLoop();
  different.block(0, 0).beginLoop(32).copy(scratch(0, 0), output(0, 0)).endLoop();
  CHECK(faultOfPlan(different.finish()) == FaultKind::WrongLoop);
  Program nested({.collective = CollectiveKind::AllReduce, .ranks = 1});
  nested.block(0, 0).beginLoop(1).beginLoop(1).endLoop().endLoop();
  CHECK(faultOfPlan(nested.finish()) == FaultKind::WrongLoop);
}

TEST_CASE("blocks that share a transfer do all of it") {
  const auto make = [](int shares) {
    Program program({.collective = CollectiveKind::AllReduce, .ranks = 1});
    for (int b = 0; b < 3; ++b) program.block(0, b).share(b < shares ? b : 0, shares).copy(input(0, 0), output(0, 0));
    return program.finish();
  };
  CHECK(faultOfPlan(make(3)) == FaultKind::None);
  CHECK(faultOfPlan(make(4)) == FaultKind::Uninitialised);
  CHECK(faultOfPlan(make(2)) == FaultKind::WriteBeforeWrite);
  CHECK(faultOfPlan(make(0)) == FaultKind::WrongShare);
}

TEST_CASE("an input is written only in place") {
  const auto make = [](bool inPlace) {
    Program program({.collective = CollectiveKind::AllReduce, .ranks = 1, .inPlace = inPlace});
    program.block(0, 0).copy(input(0, 0), scratch(0, 0)).copy(scratch(0, 0), input(0, 0));
    if (!inPlace) program.block(0, 0).copy(input(0, 0), output(0, 0));
    return program.finish();
  };
  CHECK(faultOfPlan(make(true)) == FaultKind::None);
  CHECK(faultOfPlan(make(false)) == FaultKind::InputOverwritten);
}

TEST_CASE("chunks of different positions do not mix: their sizes may differ") {
  Program program({.collective = CollectiveKind::AllReduce, .ranks = 1, .chunksPerPart = 2});
  program.block(0, 0).reduce({input(0, 0), input(0, 1)}, {output(0, 0)}).copy(input(0, 1), output(0, 1));
  CHECK(faultOfPlan(program.finish()) == FaultKind::MixedPositions);
}

TEST_CASE("positions are those of the data, in scratch too") {
  Program program({.collective = CollectiveKind::AllReduce, .ranks = 1, .chunksPerPart = 3});
  program.block(0, 0)
      .copy(input(0, 1, 2), scratch(0, 0, 2))
      .copy(scratch(0, 1), scratch(0, 7))
      .copy(scratch(0, 7), output(0, 2))
      .copy(scratch(0, 0), output(0, 1))
      .copy(input(0, 0), output(0, 0));
  Plan plan = program.finish();
  CHECK(faultOfPlan(plan) == FaultKind::None);
  for (Operation& operation : plan.operations)
    if (operation.kind == OperationKind::Transfer && operation.position == 2) operation.position = 0;
  CHECK(faultOfPlan(plan) == FaultKind::WrongPosition);
}

TEST_CASE("custom collectives are held to their expectations") {
  const auto make = [](int expected) {
    Program program({.collective = CollectiveKind::Custom, .ranks = 2});
    program.setChunks(0, 3, 0);
    program.setChunks(1, 0, 1);
    program.expect(output(1, 0), {input(0, 0), input(0, expected)});
    program.block(0, 0).reduce({input(0, 0), input(0, 2)}, {scratch(1, 0)}).signal(1).wait(1);
    program.block(1, 0).wait(0).copy(scratch(1, 0), output(1, 0)).signal(0);
    return program.finish();
  };
  CHECK(faultOfPlan(make(2)) == FaultKind::None);
  CHECK(faultOfPlan(make(1)) == FaultKind::WrongResult);
  CHECK(faultOfPlan(make(3)) == FaultKind::WrongExpectation);
}

TEST_CASE("ranks and channels that do not exist") {
  Plan plan = twoShotAllReduce(2);
  plan.channels[0].peer = 2;
  CHECK(faultOfPlan(plan) == FaultKind::RankOutOfRange);
  plan = twoShotAllReduce(3);
  plan.channels[0].peer = 2;  // both of rank 0's channels lead to rank 2
  CHECK(faultOfPlan(plan) == FaultKind::MissingChannelEnd);
  plan = twoShotAllReduce(2);
  for (const int reference : {-1, 1, 1000}) {
    plan.references[0] = reference;
    CHECK(faultOfPlan(plan) == FaultKind::ChannelOutOfRange);
  }
  plan = twoShotAllReduce(2);
  plan.operations[0].sources.first = 1 << 30;
  CHECK(faultOfPlan(plan) == FaultKind::WrongRange);
  plan = twoShotAllReduce(2);
  plan.rankPlans.pop_back();
  CHECK(faultOfPlan(plan) == FaultKind::WrongHeader);
}

TEST_CASE("a message says where the fault is, and by which line of the program") {
  NamedPlan plan;
  static_cast<Plan&>(plan) = twoShotAllReduce(2);
  plan.name = "mine";
  plan.origins = {"ring.py:12"};
  for (Operation& operation : plan.operations) operation.origin = 0;
  plan.operations[2] = nothing();  // rank 0 does not signal
  const Fault fault = check(plan);
  CHECK(fault.kind == FaultKind::Deadlock);
  const std::string message = describe(plan, fault);
  CAPTURE(message);
  CHECK(message.find("plan 'mine': the block waits for ever for a signal of rank ") == 0);
  CHECK(message.find(", block 0, operation 3 (wait), made at ring.py:12") != std::string::npos);
}

}  // namespace
}  // namespace mscclpp::plan
