// The alpha-beta model: times of plans that are computed by hand, and the picture.
#include "mscclpp/kernels/plan/simulate.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "chunk_programs.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/kernels/plan/svg.hpp"
#include "mscclpp/kernels/plan/text.hpp"
#include "mscclpp/kernels/plan/verify.hpp"
#include "mscclpp/kernels/plan/xml.hpp"

namespace mscclpp::plan {
namespace {

/// Only links between ranks take time: 1 us, and 1 GB/s.
Topology simple() {
  Topology topology;
  topology.local = topology.rank = {0, 1e30};
  topology.memory = {1e-6, 1e9};
  topology.port = {3e-6, 1e9};
  topology.switched = {2e-6, 1e9};
  topology.operationSeconds = 0;
  return topology;
}

NamedPlan ring(int ranks, msccl::Protocol protocol = msccl::Protocol::Simple) {
  return msccl::ringAllReduce({.name = "ring", .collective = AllReduce(ranks, 1, true), .protocol = protocol}, 0)
      .compile();
}

TEST_CASE("a put and a signal take the link's latency, twice, and its bytes' time") {
  const NamedPlan plan = placed(fromText(R"(plan "put" custom ranks 2 chunks 1
rank 0 input 1 output 0
  channel 0 memory 1
  block 0
    transfer 1: input[0] -> output[0]@1
    sync
    signal 0
rank 1 input 0 output 1
  channel 0 memory 0
  block 0
    wait 0
)"));
  const Simulated simulated = simulate(plan, 1000, simple());
  CHECK(simulated.seconds == doctest::Approx(2e-6));
  REQUIRE(simulated.operations.size() == 4);
  const auto wait = std::find_if(simulated.operations.begin(), simulated.operations.end(),
                                 [](const SimulatedOperation& operation) { return operation.rank == 1; });
  CHECK(wait->begin == 0);
  CHECK(simulated.operations[wait->cause].operation == 2);
  Topology slow = simple();
  slow.pairs[{0, 1}] = {5e-6, 1e8};
  CHECK(simulate(plan, 1000, slow).seconds == doctest::Approx(15e-6));
}

TEST_CASE("a wait that names a channel twice takes two signals") {
  const NamedPlan plan = placed(fromText(R"(plan "twice" custom ranks 2 chunks 1
rank 0 input 1 output 0
  channel 0 memory 1
  block 0
    signal 0
    transfer 1: input[0] -> output[0]@1
    sync
    signal 0
rank 1 input 0 output 1
  channel 0 memory 0
  semaphore 0
  block 0
    wait 0 0
    release 0 0
  block 1
    acquire 0 0
)"));
  const Simulated simulated = simulate(plan, 1000, simple());
  CHECK(simulated.seconds == doctest::Approx(2e-6));
  CHECK(countOf(simulated.operations) == 7);
  CHECK(toSvg(plan, simulated).find("wait") != std::string::npos);
  CHECK(toXml(plan).find("cnt=\"1\"") != std::string::npos);
}

TEST_CASE("a ring takes 2 (n - 1) hops of a part each") {
  for (const int ranks : {2, 4}) {
    // Readiness is one more signal.
    const double seconds = simulate(ring(ranks), 4000000, simple()).seconds;
    const double hops = 2.0 * (ranks - 1);
    CHECK(seconds >= hops * (1e-6 + 4e-3 / ranks) * 0.999);
    CHECK(seconds <= hops * (1e-6 + 4e-3 / ranks) * 1.001 + 2e-6);
  }
}

TEST_CASE("packets cost twice the bytes and no signals") {
  const double packets = simulate(ring(4, msccl::Protocol::LL), 4000000, simple()).seconds;
  CHECK(packets == doctest::Approx(6 * (1e-6 + 2e-3)));
}

TEST_CASE("loops repeat, and messages of the model pass each other") {
  const NamedPlan plan = placed(fromText(R"(plan "loop" custom ranks 2 chunks 1
rank 0 input 1 output 0
  channel 0 memory 1
  block 0
    loop 1024
      transfer 1: input[0] -> output[0]@1
      sync
      signal 0
    end
rank 1 input 0 output 1
  channel 0 memory 0
  block 0
    loop 1024
      wait 0
    end
)"));
  const Simulated simulated = simulate(plan, 3000, simple());
  const auto signals = std::count_if(simulated.operations.begin(), simulated.operations.end(),
                                     [](const SimulatedOperation& o) { return o.rank == 1 && o.operation == 1; });
  CHECK(signals == 3);
  CHECK(simulated.seconds == doctest::Approx(4e-6));
}

TEST_CASE("a plan that waits for ever is refused") {
  const NamedPlan plan =
      fromText("plan \"stuck\" allreduce ranks 1 chunks 1\nrank 0\n semaphore 0\n block 0\n acquire 0\n");
  try {
    simulate(plan, 1000);
    CHECK(false);
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("rank 0, block 0, operation 0 waits for ever") != std::string::npos);
  }
}

TEST_CASE("topologies are read, and mistakes in them named") {
  const Topology topology = topologyFromJson(R"({"memory": {"us": 2, "GBps": 100}, "packet_factor": 1.5,
    "operation_us": 0.25, "pairs": [{"from": 0, "to": 1, "GBps": 50}]})");
  CHECK(topology.memory.seconds == doctest::Approx(2e-6));
  CHECK(topology.memory.bytesPerSecond == doctest::Approx(100e9));
  CHECK(topology.packetFactor == 1.5);
  CHECK(topology.operationSeconds == doctest::Approx(0.25e-6));
  CHECK(topology.pairs.at({0, 1}).bytesPerSecond == doctest::Approx(50e9));
  const struct {
    const char *text, *message;
  } cases[] = {{R"({"wire": {}})", "key \"wire\" is unknown"},
               {R"({"memory": {"speed": 1}})", "\"speed\" is unknown"},
               {R"({"memory": {"us": "1"}})", "expected a number"},
               {R"({"memory": {"GBps": 0}})", "expected a positive number"},
               {R"({"memory": {"us": -1}})", "\"us\" is -1; it is not negative"},
               {R"({"operation_us": -0.5})", "\"operation_us\" is -0.5; it is not negative"},
               {R"({"pairs": [{"from": 0}]})", "to"},
               {"{", "topology: "}};
  for (const auto& mistake : cases) {
    std::string message;
    try {
      topologyFromJson(mistake.text);
    } catch (const Error& error) {
      message = error.what();
    }
    CHECK_MESSAGE(message.find(mistake.message) != std::string::npos, message);
  }
}

TEST_CASE("the picture has a box for each operation and arrows between ranks") {
  const NamedPlan plan = ring(3);
  const Simulated simulated = simulate(plan, 1 << 20);
  const std::string svg = toSvg(plan, simulated);
  const auto countOfText = [&](const std::string& text) {
    int count = 0;
    for (std::size_t at = svg.find(text); at != std::string::npos; at = svg.find(text, at + 1)) ++count;
    return count;
  };
  CHECK(countOfText("<title>") == countOf(simulated.operations));
  CHECK(countOfText("<line ") >= 12);
  CHECK(countOfText("rank 2, block 0") == 1);
  CHECK(svg.find("-&gt;") != std::string::npos);
}

}  // namespace
}  // namespace mscclpp::plan
