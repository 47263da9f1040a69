// The checker finds no fault in plans that are right, and each kind of fault in plans that are not.
#include "mscclpp/plan/check.hpp"

#include <doctest/doctest.h>

#include <string>

#include "all_pairs.hpp"
#include "mscclpp/plan/fault_message.hpp"
#include "sample_plans.hpp"

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

/// Whether a read and the write of what it is to read are in no order: which of them is first is the checker's choice.
bool isUnorderedRead(FaultKind kind) {
  return kind == FaultKind::ReadBeforeWrite || kind == FaultKind::Uninitialised;
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

TEST_CASE("packets of chunks that may be empty order nothing else") {
  // Rank `peer` has begun its call, if the packets arrive.
  const auto make = [](int position, int dataPosition) {
    return exchange({.chunksPerPart = 2, .doubleScratch = true}, [&](Program& program, int rank, int peer) {
      auto block = program.block(rank, 0);
      block.copy(input(rank, 0, 2), output(rank, 2 * rank, 2));
      block.copy(input(rank, position), scratch(peer, 0).packets());
      block.copy(scratch(rank, 0).packets(), scratch(rank, 1)).barrier(0, 1);
      const int first = dataPosition, last = 1 - first;
      block.copy(input(rank, first), output(peer, 2 * rank + first)).signal(peer).wait(peer);
      block.copy(input(rank, last), output(peer, 2 * rank + last)).signal(peer).wait(peer);
    });
  };
  CHECK(faultOfPlan(make(0, 0)) == FaultKind::None);
  CHECK(faultOfPlan(make(0, 1)) == FaultKind::None);
  CHECK(faultOfPlan(make(1, 0)) == FaultKind::AccessBeforeCall);
  CHECK(faultOfPlan(make(1, 1)) == FaultKind::None);  // if there is data to write, there are packets
}

TEST_CASE("packets of a share order nothing else") {
  // Block 1 reads a chunk of scratch and sends packets; block 0 sends the first share. Block 2 of the peer then
  // overwrites the chunk: in short messages all packets that there are come from block 0.
  const auto make = [](bool withBarrier) {
    return exchange({.doubleScratch = true}, [&](Program& program, int rank, int peer) {
      auto first = program.block(rank, 0), second = program.block(rank, 1), third = program.block(rank, 2);
      second.copy(input(rank, 0), scratch(rank, 1)).copy(scratch(rank, 1), output(rank, rank));
      if (withBarrier) first.barrier(0, 2);
      second.barrier(0, withBarrier ? 2 : 1);
      first.share(0, 2).copy(input(rank, 0), scratch(peer, 0).packets());
      second.share(1, 2).copy(input(rank, 0), scratch(peer, 0).packets());
      third.reduce({scratch(rank, 0).packets()}, {output(rank, peer), scratch(peer, 1)}).signal(peer).wait(peer);
    });
  };
  CHECK(faultOfPlan(make(true)) == FaultKind::None);
  CHECK(faultOfPlan(make(false)) == FaultKind::WriteBeforeRead);
}

TEST_CASE("results in packets tell that the packets they are made of have been read") {
  for (const int blocks : {1, 2}) {
    Plan plan = twoShotPacketPlan(3, blocks);
    CHECK(faultOfPlan(plan) == FaultKind::None);
    plan.doubleScratch = false;
    CHECK(faultOfPlan(plan) == FaultKind::None);
  }
  // The result in one block, and the packets in another: these tell nothing of the other block, unless it goes before.
  const auto make = [](bool withBarrier) {
    Program program({.collective = CollectiveKind::AllReduce, .ranks = 2, .chunksPerPart = 2});
    for (int rank = 0; rank < 2; ++rank) {
      const int peer = 1 - rank;
      const Chunks parts[] = {input(rank, rank), scratch(rank, 0).packets()};
      const Chunks result = output(rank, rank), sent = scratch(peer, 1).packets();
      auto first = program.block(rank, 0), second = program.block(rank, 1);
      first.copy(input(rank, peer), scratch(peer, 0).packets()).reduce(parts, {&result, 1});
      if (withBarrier) first.barrier(0, 2);
      if (withBarrier) second.barrier(0, 2);
      second.reduce(parts, {&sent, 1}).copy(scratch(rank, 1).packets(), output(rank, peer));
    }
    return program.finish();
  };
  CHECK(faultOfPlan(make(true)) == FaultKind::None);
  CHECK(faultOfPlan(make(false)) == FaultKind::WriteBeforeRead);
}

TEST_CASE("what packets tell a thread is known to others of its block after a sync") {
  // The peer has read its chunk 1 when its packets arrive. Other threads than wait for them store the second share.
  const auto make = [](int shares, bool withSync) {
    return exchange({.doubleScratch = true}, [&](Program& program, int rank, int peer) {
      auto first = program.block(rank, 0), second = program.block(rank, 1);
      first.copy(input(rank, 0), scratch(rank, 1)).copy(scratch(rank, 1), output(rank, rank));
      first.barrier(0, 1).copy(input(rank, 0), scratch(peer, 0).packets());
      second.copy(scratch(rank, 0).packets(), output(rank, peer));
      if (withSync) second.barrier(1, 1);
      second.share(shares - 1, shares).copy(input(rank, 0), scratch(peer, 1)).signal(peer).wait(peer);
    });
  };
  CHECK(faultOfPlan(make(1, false)) == FaultKind::None);
  CHECK(faultOfPlan(make(2, true)) == FaultKind::None);
  CHECK(faultOfPlan(make(2, false)) == FaultKind::WriteBeforeRead);
}

TEST_CASE("packets that have arrived are forwarded through port channels") {
  // Rank 0 writes to rank 1's scratch again when rank 1 tells that its proxy has read it: after a flush, or when rank 2
  // has got the packets, which says that they were read before.
  const auto make = [](bool flush, bool answer) {
    Program program({.collective = CollectiveKind::Broadcast, .ranks = 3, .doubleScratch = true});
    program.block(0, 0).copy(input(0, 0), output(0, 0)).copy(input(0, 0), scratch(1, 0).packets()).wait(1);
    auto block = program.block(1, 0);
    block.copy(scratch(1, 0).packets(), output(1, 0)).copyThroughPort(scratch(1, 0).packets(), scratch(2, 0).packets());
    if (flush) block.flush(2);
    block.signal(0);
    program.block(2, 0).copy(scratch(2, 0).packets(), output(2, 0));
    if (answer) {
      block.wait(2);
      program.block(2, 0).signal(1);
    }
    return program.finish();
  };
  CHECK(faultOfPlan(make(true, true)) == FaultKind::None);
  CHECK(faultOfPlan(make(false, true)) == FaultKind::None);
  CHECK(faultOfPlan(make(false, false)) == FaultKind::WriteBeforeRead);
}

TEST_CASE("a port's read of some packets is told by these, and not by other packets") {
  // Each rank sends its packets from its own scratch by the proxy. In the call after next it overwrites them there; the
  // peer's packets of the next call tell it that the peer has got these. chunks: that are sent; the peer gets only the
  // first of them before it goes on.
  const auto make = [](int chunks, bool isDouble) {
    return exchange({.chunksPerPart = 2, .doubleScratch = isDouble}, [&](Program& program, int rank, int peer) {
      auto block = program.block(rank, 0);
      block.copy(input(rank, 0, 2), output(rank, 2 * rank, 2));
      for (int i = 0; i < chunks; ++i) {
        block.copy(input(rank, i), scratch(rank, i).packets());
        block.copyThroughPort(scratch(rank, i).packets(), scratch(peer, 2 + i).packets());
      }
      block.copy(scratch(rank, 2).packets(), output(rank, 2 * peer));
      block.copy(input(rank, 1), scratch(peer, 4).packets())
          .copy(scratch(rank, 4).packets(), output(rank, 2 * peer + 1));
    });
  };
  CHECK(faultOfPlan(make(1, true)) == FaultKind::None);
  CHECK(faultOfPlan(make(1, false)) != FaultKind::None);
  CHECK(faultOfPlan(make(2, true)) == FaultKind::WriteBeforeRead);  // of the second chunk's packets, which nobody reads
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
  CHECK(fault.kind == FaultKind::AccessBeforeCall);
  CHECK(fault.buffer == BufferKind::Output);
  CHECK(fault.bufferRank == 1 - fault.rank);
}

TEST_CASE("loads from a peer's output, or input, end before the peer's call") {
  const auto make = [](bool ofOutput, bool withEnd) {
    return exchange({}, [&](Program& program, int rank, int peer) {
      auto block = program.block(rank, 0);
      block.signal(peer).wait(peer).copy(input(rank, 0), output(rank, rank)).signal(peer).wait(peer);
      block.copy(ofOutput ? output(peer, peer) : input(peer, 0), output(rank, peer));
      if (withEnd) block.signal(peer).wait(peer);
    });
  };
  for (const bool ofOutput : {false, true}) {
    CHECK(faultOfPlan(make(ofOutput, true)) == FaultKind::None);
    CHECK(faultOfPlan(make(ofOutput, false)) == FaultKind::AccessAfterCall);
  }
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
  CHECK(faultOfPlan(make(false)) == FaultKind::AccessAfterCall);  // the caller writes its next input
}

TEST_CASE("what several blocks push to a port channel is ordered only where the blocks are") {
  const auto make = [](bool withBarrier, bool flushesBoth) {
    return exchange({.chunksPerPart = 2}, [&](Program& program, int rank, int peer) {
      for (int b = 0; b < 2; ++b) {
        auto block = program.block(rank, b);
        block.copy(input(rank, b), output(rank, 2 * rank + b)).signal(peer).wait(peer).channel(0);
        block.copyThroughPort(input(rank, b), output(peer, 2 * rank + b));
        if (b == 0 && flushesBoth) block.flush(peer);
        if (withBarrier) block.barrier(1, 2);
        if (b == 1) block.signalThroughPort(peer).flush(peer).waitThroughPort(peer);
      }
    });
  };
  for (const bool flushesBoth : {false, true}) {
    CHECK(faultOfPlan(make(true, flushesBoth)) == FaultKind::None);
    CHECK(isUnorderedRead(faultOfPlan(make(false, flushesBoth))));
  }
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
  CHECK(isUnorderedRead(faultOfPlan(make(0))));
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
  const Plan ambiguous = make(2, 2);
  const Fault fault = check(ambiguous);
  CHECK(fault.kind == FaultKind::AmbiguousCounter);  // which release each of them gets
  const std::string message = describe(ambiguous, fault);
  CHECK_MESSAGE(message.find("wait for, device semaphore 0, and timing") != std::string::npos, message);
  CHECK_MESSAGE(message.find("(another one: rank 0, block 0, operation 4 (release))") != std::string::npos, message);
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

TEST_CASE("a missing signal is named where it is missing, not where the blocks wait for each other later") {
  // The signal that opens the second step takes the place of the missing one, and data moves that one call does not
  // move, so that its position is unknown.
  const auto allGather = [](bool isMissing, bool isTooMany) {
    Program program({.collective = CollectiveKind::AllGather, .ranks = 4, .chunksPerPart = 2});
    for (int rank = 0; rank < 4; ++rank) {
      for (int half = 0; half < 2; ++half) {
        auto block = program.block(rank, half);
        block.copy(input(rank, half), output(rank, 2 * rank + half));
        int have = rank, count = 1;
        for (int step = 0; step < 2; ++step) {
          const int bit = half == 0 ? 1 << step : 2 >> step, peer = rank ^ bit;
          block.signal(peer).wait(peer);
          for (int i = 0; i < count; ++i) {
            const int chunk = 2 * (i == 0 ? rank : have) + half;
            block.copy(output(rank, chunk), output(peer, chunk));
          }
          if (!(isMissing && rank == 3)) block.signal(peer);
          block.wait(peer);
          if (isTooMany && rank == 2 && half == 0 && step == 1) block.wait(peer);
          have = peer;
          count = 2;
        }
      }
    }
    return program.finish();
  };
  CHECK(faultOfPlan(allGather(false, false)) == FaultKind::None);
  CHECK(faultOfPlan(allGather(true, false)) == FaultKind::Deadlock);
  const Plan tooMany = allGather(false, true);
  const Fault fault = check(tooMany);
  CHECK(describe(tooMany, fault)
            .find("waits for ever for a signal of rank 0, which sends it no more in this call; at rank 2, block 0") !=
        std::string::npos);
}

TEST_CASE("a deadlock is reported where the wait is that nobody ends, or as a cycle") {
  const auto messageOf = [](const Plan& plan) {
    const Fault fault = check(plan);
    CHECK(fault.kind == FaultKind::Deadlock);
    return describe(plan, fault);
  };
  const auto start = [](Program& program, int ranks) {
    for (int rank = 0; rank < ranks; ++rank) program.block(rank, 0).copy(input(rank, 0), output(rank, rank));
  };
  {  // Rank 0 waits for rank 1, which waits for rank 2, which does not signal.
    Program program({.collective = CollectiveKind::AllGather, .ranks = 3});
    start(program, 3);
    program.block(0, 0).wait(1).signal(1);
    program.block(1, 0).wait(2).signal(0).wait(0).signal(2);
    program.block(2, 0).wait(1);
    const std::string message = messageOf(program.finish());
    CHECK(message ==
          "plan: the block waits for ever for a signal of rank 2, which sends it no more in this call; at rank 1, "
          "block 0, operation 1 (wait).");
  }
  {  // Ranks 1 and 2 wait for each other, and rank 0 for rank 1.
    Program program({.collective = CollectiveKind::AllGather, .ranks = 3});
    start(program, 3);
    program.block(0, 0).wait(1).signal(1);
    program.block(1, 0).wait(2).signal(0).wait(0).signal(2);
    program.block(2, 0).wait(1).signal(1);
    const std::string message = messageOf(program.finish());
    CHECK(message ==
          "plan: the block waits for ever: what it waits for comes after rank 1, block 0, operation 1 (wait), where "
          "that block waits for this one, directly or through others; at rank 2, block 0, operation 1 (wait).");
  }
  {  // A block does not come to a barrier, since it waits for packets that nobody sends.
    Program program({.collective = CollectiveKind::AllGather, .ranks = 1});
    program.block(0, 0).barrier(0, 2);
    program.block(0, 1).copy(scratch(0, 0).packets(), output(0, 0)).barrier(0, 2);
    const std::string message = messageOf(program.finish());
    CHECK(message.find("since nobody is left to end the wait in this call; at rank 0, block 1, operation") !=
          std::string::npos);
  }
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
  CHECK(checkMixedIterations(make(true)).kind == FaultKind::None);
  CHECK(checkMixedIterations(make(false)).kind != FaultKind::None);
  // Inputs are read where they are: a rank may be late for the next call, whatever its length.
  const Plan pulling = exchange({}, [&](Program& program, int rank, int peer) {
    copyOwn(program, rank);
    auto block = program.block(rank, 0);
    block.beginLoop(4096).copy(input(peer, 0), output(rank, peer)).endLoop();
  });
  CHECK(checkMixedIterations(pulling).kind != FaultKind::None);

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

TEST_CASE("shares of different numbers may overlap wherever they lie") {
  const auto make = [](int shares, bool together) {
    Program program({.collective = CollectiveKind::AllReduce, .ranks = 1});
    for (int b = 0; b < 4; ++b) {  // blocks 0 and 2 store halves, and half of the blocks wait for each
      auto block = program.block(0, b);
      if (b % 2 == 0) block.share(b / 2, 2).copy(input(0, 0), scratch(0, 0));
      block.barrier(together ? 0 : b / 2, together ? 4 : 2);
      if (shares == 4 || b % 2 == 0) block.share(b * shares / 4, shares).copy(scratch(0, 0), output(0, 0));
    }
    return program.finish();
  };
  CHECK(faultOfPlan(make(2, false)) == FaultKind::None);
  CHECK(faultOfPlan(make(4, true)) == FaultKind::None);
  CHECK(isUnorderedRead(faultOfPlan(make(4, false))));
}

TEST_CASE("shares of chunks of different sizes overlap in scratch") {
  const auto make = [](bool withBarrier) {
    Program program({.collective = CollectiveKind::AllReduce, .ranks = 1, .chunksPerPart = 2});
    for (int b = 0; b < 2; ++b) {
      auto block = program.block(0, b).share(b, 2);
      block.copy(input(0, 0), scratch(0, 0)).copy(scratch(0, 0), output(0, 0));
      if (withBarrier) block.barrier(0, 2);
      block.copy(input(0, 1), scratch(0, 0)).copy(scratch(0, 0), output(0, 1));
    }
    return program.finish();
  };
  CHECK(faultOfPlan(make(true)) == FaultKind::None);
  CHECK(faultOfPlan(make(false)) == FaultKind::WriteBeforeRead);
}

TEST_CASE("what is too large is not checked") {
  const auto doubled = [](int times, int result) {
    Program program({.collective = CollectiveKind::AllReduce, .ranks = 1});
    auto block = program.block(0, 0);
    block.copy(input(0, 0), scratch(0, 0));
    for (int i = 0; i < times; ++i) block.reduce({scratch(0, i), scratch(0, i)}, {scratch(0, i + 1)});
    block.copy(scratch(0, result), output(0, 0));
    return program.finish();
  };
  CHECK(faultOfPlan(doubled(100, 0)) == FaultKind::None);  // a sum of 2^100 inputs
  CHECK(faultOfPlan(doubled(100, 100)) == FaultKind::WrongResult);
  CHECK(faultOfPlan(doubled(1, 1)) == FaultKind::WrongResult);
  Plan plan = doubled(1, 0);
  const auto isTooLarge = [](const Fault& fault, SizeLimit limit) {
    return fault.kind == FaultKind::TooLarge && fault.index == static_cast<int>(limit);
  };
  for (const int chunks : {1 << 23, 1 << 30}) {
    plan.rankPlans[0].scratchChunks = chunks;
    CHECK(isTooLarge(check(plan), SizeLimit::Chunks));
  }
  plan = twoShotAllReduce(4);
  CHECK(isTooLarge(check(plan, {.steps = 100}), SizeLimit::Steps));
  CHECK(isTooLarge(check(plan, {.numbers = 300}), SizeLimit::Numbers));
  CHECK(describe(plan, check(plan, {.numbers = 300})).find("CheckLimits::numbers") != std::string::npos);
  Assembler blocks({.collective = CollectiveKind::AllReduce, .ranks = 1});
  blocks.add(0, maxRankBlocks, {.kind = OperationKind::Sync});
  plan = blocks.finish();
  CHECK(isTooLarge(check(plan), SizeLimit::Blocks));
  CHECK(describe(plan, check(plan)).find("a rank has 1025 blocks; the most are 1024") != std::string::npos);
}

TEST_CASE("a program of a rank or a block that cannot exist is refused where it is named") {
  Program program({.collective = CollectiveKind::AllReduce, .ranks = 2});
  CHECK_THROWS_WITH_AS(program.block(2, 0), "a plan's rank 2: they are numbered from 0 to 1", std::out_of_range);
  CHECK_THROWS_AS(program.block(-1, 0), std::out_of_range);
  CHECK_THROWS_AS(program.block(0, -1), std::out_of_range);
  CHECK_THROWS_WITH_AS(program.block(0, 1024), "a plan's block 1024: they are numbered from 0 to 1023",
                       std::out_of_range);
  CHECK_THROWS_AS(program.semaphore(2, 0), std::out_of_range);
  CHECK_THROWS_AS(program.setChunks(2, 1, 1), std::out_of_range);
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

TEST_CASE("operands of a transfer have as many chunks") {
  const auto make = [](int sources, int destinations) {
    Program program({.collective = CollectiveKind::Broadcast, .ranks = 1, .chunksPerPart = 2});
    program.block(0, 0).copy(input(0, 0, sources), output(0, 0, destinations));
    return program.finish();
  };
  CHECK(faultOfPlan(make(2, 2)) == FaultKind::None);
  CHECK(faultOfPlan(make(2, 1)) == FaultKind::WrongTransfer);
  CHECK(faultOfPlan(make(1, 2)) == FaultKind::WrongTransfer);
}

TEST_CASE("a wrong result is told with the operation that wrote it") {
  const Plan plan = exchange({}, [&](Program& program, int rank, int peer) {
    copyOwn(program, rank);
    auto block = program.block(rank, 0);
    block.signal(peer).wait(peer);
    block.copy(input(rank, 0), output(peer, rank)).signal(peer).wait(peer);
    if (rank == 1) block.copy(output(1, 0), output(1, 1));
  });
  const Fault fault = check(plan);
  CHECK(describe(plan, fault) ==
        "plan: output chunk 1 of rank 1 does not hold what the collective defines; rank 1, block 0, operation " +
            std::to_string(fault.otherOperation) + " (transfer) wrote it last.");
  CHECK(fault.otherOperation == plan.blocks[1].operations.count - 1);
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
  // Its second signal takes the place of the first one.
  CHECK(message ==
        "plan 'mine': the block waits for ever for a signal of rank 0, which sends it no more in this call; at rank 1, "
        "block 0, operation 8 (wait), made at ring.py:12.");
}

}  // namespace
}  // namespace mscclpp::plan
