// Every operation of the reference's JSON schema in and out, and what is refused.
#include "mscclpp/kernels/plan/json.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/plan/draft.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/kernels/plan/library.hpp"
#include "mscclpp/kernels/plan/text.hpp"
#include "mscclpp/kernels/plan/verify.hpp"
#include "mscclpp/kernels/plan/without_switches.hpp"
#include "tests/plan/all_pairs.hpp"

namespace mscclpp::plan {
namespace {

using Json = nlohmann::json;

/// Two ranks that have every kind of channel and buffer; rank 0 has one block with `operations`.
Json planWith(const std::vector<Json>& operations) {
  Json plan = Json::parse(R"({"name": "test", "collective": "allreduce", "protocol": "Simple", "inplace": false,
    "reuse_resources": false, "num_threads_per_block": 256, "use_double_scratch_buffer": true, "buffer_alignment": 16,
    "min_message_size": 0, "max_message_size": 18446744073709551615, "gpus": []})");
  for (int rank = 0; rank < 2; ++rank) {
    Json gpu{{"id", rank}, {"input_chunks", 8}, {"output_chunks", 8}, {"scratch_chunks", 16}};
    const int peer = 1 - rank;
    gpu["channels"] = {
        {{"channel_type", "memory"}, {"connected_to", {peer, peer}}},
        {{"channel_type", "port"}, {"connected_to", {peer, peer}}},
        {{"channel_type", "switch"}, {"buffer_type", "i"}, {"rank_groups", {{{"size", 2}, {"ranks", {0, 1}}}}}}};
    const Json both = {"memory", "port"};
    gpu["remote_buffers"] = {{{"rank", peer}, {"type", "i"}, {"access_channel_types", both}},
                             {{"rank", peer}, {"type", "o"}, {"access_channel_types", both}},
                             {{"rank", peer}, {"type", "s"}, {"access_channel_types", both}}};
    gpu["semaphores"] = {{{"init_value", 0}}, {{"init_value", 2}}};
    gpu["threadblocks"] = {{{"id", 0},
                            {"ops", rank == 0 ? Json(operations) : Json::array()},
                            {"channels",
                             {{{"channel_type", "memory"}, {"channel_ids", {1, 0}}},
                              {{"channel_type", "port"}, {"channel_ids", {0, 1}}},
                              {{"channel_type", "switch"}, {"channel_ids", {0}}}}},
                            {"remote_buffer_refs",
                             {{{"access_channel_type", "memory"}, {"remote_buffer_ids", {2, 0, 1}}},
                              {{"access_channel_type", "port"}, {"remote_buffer_ids", {0, 1, 2}}}}}}};
    plan["gpus"].push_back(gpu);
  }
  return plan;
}

std::vector<Step> read(const std::vector<Json>& operations) {
  return draftOf(fromJson(planWith(operations).dump())).ranks[0].blocks[0];
}

std::string errorOf(const Json& plan) {
  try {
    fromJson(plan.dump());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Json local(const char* buffer, int index, int size = 1) {
  return {{"type", buffer}, {"index", index}, {"size", size}};
}
Json remote(int id, int index, int size = 1) {
  return {{"buffer_id", id}, {"index", index}, {"size", size}};
}
Json onSwitch(int index, int size = 1) {
  return {{"switch_channel_id", 0}, {"index", index}, {"size", size}};
}
Json data(const char* name, const std::vector<Json>& sources, const std::vector<Json>& destinations,
          const char* type = nullptr, const std::vector<int>& channels = {}) {
  Json operation{{"name", name}, {"src_buff", sources}, {"dst_buff", destinations}};
  if (type != nullptr) operation["channel_type"] = type;
  if (!channels.empty()) operation["channel_ids"] = channels;
  return operation;
}

/// The names of the operations of rank 0, block 0.
std::vector<std::string> namesOf(const NamedPlan& plan) {
  std::vector<std::string> names;
  const Json json = Json::parse(toJson(plan));
  for (const Json& operation : json["gpus"][0]["threadblocks"][0]["ops"]) names.push_back(operation["name"]);
  return names;
}

/// Imports one operation, exports it under the same name, and gets the same steps from that.
std::vector<Step> roundTrip(const Json& operation) {
  const NamedPlan plan = fromJson(planWith(std::vector{operation}).dump());
  const Draft draft = draftOf(plan);
  CHECK_MESSAGE(namesOf(plan) == std::vector<std::string>{operation["name"]}, operation.dump());
  const Draft again = draftOf(fromJson(toJson(plan)));
  CHECK(again.ranks[0].blocks[0].size() == draft.ranks[0].blocks[0].size());
  // Channels and buffers may be numbered otherwise; what is done is the same.
  CHECK(toJson(fromJson(toJson(plan))) == toJson(plan));
  return draft.ranks[0].blocks[0];
}

Operand operandOf(BufferKind buffer, int first, Form form = Form::Plain, Access access = Access::Local, int rank = 0,
                  int channel = -1) {
  return {buffer, form, access, static_cast<std::int16_t>(rank), static_cast<std::int16_t>(channel), first};
}

TEST_CASE("operations without data") {
  CHECK(roundTrip({{"name", "nop"}})[0].operation.kind == OperationKind::Sync);
  const Step barrier = roundTrip({{"name", "barrier"}, {"barrier_id", 3}, {"num_threadblocks", 1}})[0];
  CHECK(barrier.operation.kind == OperationKind::Barrier);
  CHECK(barrier.operation.index == 3);
  CHECK(barrier.operation.blocks == 1);
  const struct {
    const char* name;
    OperationKind kind;
    bool relaxed;
  } cases[] = {{"signal", OperationKind::Signal, false},
               {"wait", OperationKind::Wait, false},
               {"rlxsignal", OperationKind::Signal, true},
               {"rlxwait", OperationKind::Wait, true}};
  for (const auto& expected : cases) {
    const Step step = roundTrip({{"name", expected.name}, {"channel_ids", {0, 1}}, {"channel_type", "memory"}})[0];
    CHECK(step.operation.kind == expected.kind);
    CHECK(step.operation.relaxed == expected.relaxed);
    CHECK(step.references == std::vector{1, 0});  // the block names its channels in the order 1, 0
  }
  const Step flush = roundTrip({{"name", "flush"}, {"channel_ids", {1}}, {"channel_type", "port"}})[0];
  CHECK(flush.operation.kind == OperationKind::Flush);
  CHECK(flush.references == std::vector{3});
  CHECK(roundTrip({{"name", "sem_acquire"}, {"semaphore_ids", {1}}})[0].operation.kind == OperationKind::Acquire);
  CHECK(roundTrip({{"name", "sem_release"}, {"semaphore_ids", {0, 1}}})[0].references == std::vector{0, 1});
}

TEST_CASE("copies between all kinds of memory") {
  const Operand input = operandOf(BufferKind::Input, 2), output = operandOf(BufferKind::Output, 3);
  const Operand packets = operandOf(BufferKind::Scratch, 4, Form::Packet);
  const Operand peer = operandOf(BufferKind::Scratch, 5, Form::Plain, Access::Memory, 1);
  const Operand peerPackets = operandOf(BufferKind::Scratch, 5, Form::Packet, Access::Memory, 1);
  const Operand multicast = operandOf(BufferKind::Input, 1, Form::Plain, Access::Switch, 0, 4);
  const struct {
    Json operation;
    Operand source, destination;
  } cases[] = {{data("copy", {local("i", 2)}, {local("o", 3)}), input, output},
               {data("cpkt", {local("i", 2)}, {local("s", 4)}), input, packets},
               {data("upkt", {local("s", 4)}, {local("o", 3)}), packets, output},
               {data("get", {remote(0, 5)}, {local("o", 3)}, "memory"), peer, output},
               {data("put", {local("i", 2)}, {remote(0, 5)}, "memory"), input, peer},
               {data("ppkt", {local("i", 2)}, {remote(0, 5)}, "memory"), input, peerPackets},
               {data("rppkt", {local("s", 4)}, {remote(0, 5)}, "memory"), packets, peerPackets},
               {data("gstore", {local("i", 2)}, {onSwitch(1)}, "switch"), input, multicast},
               {data("glre", {onSwitch(1)}, {local("o", 3)}, "switch"), multicast, output},
               {data("glres", {onSwitch(1)}, {onSwitch(1)}, "switch"), multicast, multicast}};
  for (const auto& expected : cases) {
    const auto steps = roundTrip(expected.operation);
    REQUIRE(steps.size() == 1);
    CHECK(steps[0].operation.kind == OperationKind::Transfer);
    CHECK(steps[0].operation.chunks == 1);
    CHECK(steps[0].sources == std::vector{expected.source});
    CHECK(steps[0].destinations == std::vector{expected.destination});
  }
  const Step packetStore = roundTrip(data("gstorepkt", {local("i", 2)}, {onSwitch(1)}, "switch"))[0];
  CHECK(packetStore.destinations[0].form == Form::Packet);
}

TEST_CASE("a put to several peers has one source; other pairs are operations of their own") {
  const auto same = roundTrip(data("put", {local("i", 2), local("i", 2)}, {remote(0, 5), remote(2, 1)}, "memory"));
  REQUIRE(same.size() == 1);
  CHECK(same[0].destinations.size() == 2);
  const auto two = read({data("put", {local("i", 2), local("i", 3)}, {remote(0, 5), remote(2, 1)}, "memory")});
  REQUIRE(two.size() == 2);
  CHECK(two[1].sources[0].first == 3);
}

TEST_CASE("puts through port channels, with signals and flushes") {
  const std::vector<Json> sources = {local("i", 2)}, destinations = {remote(2, 5)};
  const std::vector channel = {1};
  const auto put = roundTrip(data("put", sources, destinations, "port", channel));
  REQUIRE(put.size() == 1);
  CHECK(put[0].destinations[0] == operandOf(BufferKind::Scratch, 5, Form::Plain, Access::Port, 1, 3));
  const auto signalled = roundTrip(data("pws", sources, destinations, "port", channel));
  REQUIRE(signalled.size() == 2);
  CHECK(signalled[1].operation.kind == OperationKind::Signal);
  CHECK(signalled[1].references == std::vector{3});
  const auto flushed = roundTrip(data("pwsf", sources, destinations, "port", channel));
  REQUIRE(flushed.size() == 3);
  CHECK(flushed[2].operation.kind == OperationKind::Flush);
  const auto two = roundTrip(data("pws", {local("i", 2), local("i", 3)}, {remote(2, 5), remote(2, 6)}, "port", {0, 1}));
  REQUIRE(two.size() == 3);
  CHECK(two[2].references == std::vector{2, 3});
  const auto packets = roundTrip(data("ppkt", {local("s", 2)}, {remote(2, 5)}, "port", channel));
  CHECK(packets[0].sources[0].form == Form::Packet);
}

TEST_CASE("reductions") {
  const Json in = local("i", 0, 2), s0 = local("s", 0, 2), s2 = local("s", 2, 2), out = local("o", 0, 2);
  const Json peer = remote(0, 4, 2);
  struct Shape {
    Json operation;
    Form lastSource;
    Access lastSourceAccess;
    std::vector<std::pair<Form, Access>> destinations;
  };
  const std::pair kept{Form::Plain, Access::Local};
  const Shape cases[] = {{data("re", {in, s0, s2}, {out}), Form::Plain, Access::Local, {kept}},
                         {data("res", {in, s0, s2}, {out, peer}, "memory"),
                          Form::Plain,
                          Access::Local,
                          {kept, {Form::Plain, Access::Memory}}},
                         {data("rre", {in, peer, peer}, {out}, "memory"), Form::Plain, Access::Memory, {kept}},
                         {data("rres", {in, peer, peer}, {out, peer}, "memory"),
                          Form::Plain,
                          Access::Memory,
                          {kept, {Form::Plain, Access::Memory}}},
                         {data("repkt", {in, s0, s2}, {out}), Form::Packet, Access::Local, {kept}},
                         {data("recpkt", {in, s0, s2}, {out, local("s", 6, 2)}),
                          Form::Packet,
                          Access::Local,
                          {kept, {Form::Packet, Access::Local}}},
                         {data("respkt", {in, s0, s2}, {out, peer}, "memory"),
                          Form::Packet,
                          Access::Local,
                          {kept, {Form::Packet, Access::Memory}}},
                         {data("recspkt", {in, s0, s2}, {out, local("s", 6, 2), peer}, "memory"),
                          Form::Packet,
                          Access::Local,
                          {kept, {Form::Packet, Access::Local}, {Form::Packet, Access::Memory}}}};
  for (const Shape& expected : cases) {
    const auto steps = roundTrip(expected.operation);
    REQUIRE(steps.size() == 1);
    CHECK(steps[0].operation.chunks == 2);
    REQUIRE(steps[0].sources.size() == 3);
    CHECK(steps[0].sources[0] == operandOf(BufferKind::Input, 0));
    CHECK(steps[0].sources[2].form == expected.lastSource);
    CHECK(steps[0].sources[2].access == expected.lastSourceAccess);
    REQUIRE(steps[0].destinations.size() == expected.destinations.size());
    for (std::size_t i = 0; i < expected.destinations.size(); ++i) {
      CHECK(steps[0].destinations[i].form == expected.destinations[i].first);
      CHECK(steps[0].destinations[i].access == expected.destinations[i].second);
    }
  }
}

TEST_CASE("a reduction whose result a proxy sends is a reduction and a put") {
  const auto steps = read({data("res", {local("i", 0), local("s", 0)}, {local("o", 0), remote(2, 4)}, "port", {0})});
  REQUIRE(steps.size() == 3);
  CHECK(steps[0].destinations == std::vector{operandOf(BufferKind::Output, 0)});
  CHECK(steps[1].operation.kind == OperationKind::Sync);
  CHECK(steps[2].sources == std::vector{operandOf(BufferKind::Output, 0)});
  CHECK(steps[2].destinations[0].access == Access::Port);
}

TEST_CASE("loops and groups of thread blocks") {
  Json put = data("put", {local("i", 0, 2)}, {remote(0, 4, 2)}, "memory");
  put["tbg_info"] = {{"tb_id", 1}, {"tbg_size", 3}};
  const Json loop{{"name", "pipeline"},
                  {"iter_context", {{"unit_size", 4096}, {"num_chunks", 2}}},
                  {"ops", {put, {{"name", "nop"}}}}};
  const auto steps = roundTrip(loop);
  REQUIRE(steps.size() == 4);
  CHECK(steps[0].operation.kind == OperationKind::LoopBegin);
  CHECK(steps[0].operation.unitBytes == 2048);
  CHECK(steps[1].operation.share == 1);
  CHECK(steps[1].operation.shares == 3);
  CHECK(steps[3].operation.kind == OperationKind::LoopEnd);
}

TEST_CASE("the header, and buffers that are given once in place") {
  Json json = planWith({Json{{"name", "nop"}}});
  const NamedPlan plan = fromJson(json.dump());
  CHECK(plan.name == "test");
  CHECK(plan.collective == CollectiveKind::AllReduce);
  CHECK(plan.ranks == 2);
  CHECK(plan.chunksPerPart == 8);
  CHECK(plan.threadsPerBlock == 256);
  CHECK(plan.doubleScratch);
  CHECK(plan.maxBytes == ~std::uint64_t{0});
  json["inplace"] = true;
  for (Json& gpu : json["gpus"]) gpu["output_chunks"] = 0;
  CHECK(fromJson(json.dump()).rankPlans[1].outputChunks == 8);
  json["collective"] = "allgather";
  for (Json& gpu : json["gpus"]) gpu["output_chunks"] = 16;
  CHECK(fromJson(json.dump()).chunksPerPart == 8);
}

TEST_CASE("a plan with more than eight channels in an operation is written in several") {
  NamedPlan plan;
  static_cast<Plan&>(plan) = twoShotAllReduce(8);
  const Draft draft = draftOf(plan);
  Draft again = draftOf(fromJson(toJson(plan)));
  CHECK(again.ranks[3].channels == draft.ranks[3].channels);
  // Local operands come first in the text.
  CHECK(again.ranks[0].blocks == draft.ranks[0].blocks);
  CHECK(again.ranks[3].blocks[0].size() == draft.ranks[3].blocks[0].size());
  static_cast<Plan&>(plan) = twoShotAllReduce(12);
  for (Operation& operation : plan.operations) {
    if (operation.kind == OperationKind::Transfer && operation.sources.count > 1) operation.kind = OperationKind::Sync;
  }
  const auto names = namesOf(plan);
  CHECK(std::count(names.begin(), names.end(), "signal") == 4);
  CHECK(std::count(names.begin(), names.end(), "wait") == 4);
}

TEST_CASE("custom collectives keep what they expect, and rooted ones their root") {
  Json json = planWith({});
  json["collective"] = "custom";
  json["expectations"] = Json::parse(R"([{"rank": 1, "chunk": 3, "contributions": [[0, 1], [1, 2]]}])");
  const Draft draft = draftOf(fromJson(toJson(fromJson(json.dump()))));
  REQUIRE(draft.expectations.size() == 1);
  CHECK(draft.expectations[0] == DraftExpectation{1, 3, {{0, 1}, {1, 2}}});
  json["expectations"][0]["contributions"][0][0] = 2;
  CHECK(errorOf(json).find("rank 2 does not exist") != std::string::npos);
  json = planWith({});
  json["collective"] = "broadcast";
  json["root"] = 1;
  json["gpus"][0]["input_chunks"] = 0;
  CHECK(fromJson(toJson(fromJson(json.dump()))).root == 1);
}

TEST_CASE("a key that stands twice is refused") {
  CHECK_THROWS_WITH_AS(fromJson(R"({"name": "a", "collective": "allgather", "collective": "allreduce", "gpus": []})"),
                       doctest::Contains("key \"collective\" stands twice in one object"), Error);
}

TEST_CASE("the order of a sum survives") {
  // Rank 1's own input is the second of three terms, between packets; then all that is there.
  const Operand p0 = operandOf(BufferKind::Scratch, 0, Form::Packet),
                p1 = operandOf(BufferKind::Scratch, 1, Form::Packet);
  const Operand in = operandOf(BufferKind::Input, 0), out = operandOf(BufferKind::Output, 0);
  const auto sumOf = [&](const std::vector<Operand>& sources) {
    Draft draft = makeDraft({.collective = CollectiveKind::AllReduce, .ranks = 1}, "sum");
    draft.ranks[0].scratchChunks = 2;
    draft.ranks[0].blocks = {{{{.kind = OperationKind::Transfer, .chunks = 1}, sources, {out}}}};
    const Draft again = draftOf(fromJson(toJson(lower(draft))));
    std::vector<Step> steps = again.ranks[0].blocks[0];
    // Copies that come before the sum are put where they are used.
    std::vector<Operand> terms = steps.back().sources;
    for (const Step& step : steps) {
      if (step.sources.size() == 1) std::replace(terms.begin(), terms.end(), step.destinations[0], step.sources[0]);
    }
    return terms;
  };
  CHECK(sumOf({p0, in, p1}) == std::vector{in, p0, p1});  // the first two may change places
  CHECK(sumOf({in, p0, p1}) == std::vector{in, p0, p1});
  CHECK(sumOf({p0, p1, in}) == std::vector{p0, p1, in});
  CHECK(sumOf({p1, p0}) == std::vector{p1, p0});
}

TEST_CASE("plans of the library go through JSON, and are proven again") {
  for (const LibraryPlan& entry : libraryPlans()) {
    for (const auto protocol : {msccl::Protocol::Simple, msccl::Protocol::LL}) {
      LibraryArguments arguments{.ranks = 4, .ranksPerNode = 2, .protocol = protocol};
      if (!entry.refuses(arguments).empty()) arguments.inPlace = true;
      const NamedPlan plan = makeLibraryPlan(entry.name, arguments);
      std::string message;
      try {
        verified(fromJson(toJson(plan)));
      } catch (const Error& error) {
        message = error.what();
      }
      CHECK_MESSAGE(message == "", std::string(entry.name), ", protocol ", static_cast<int>(protocol));
    }
  }
}

TEST_CASE("a copy to where the data is, and elsewhere, is proven again") {
  const NamedPlan plan = placed(fromText(R"(plan "kept" custom ranks 1 chunks 1
expect 0 0: 0[0]
rank 0 input 1 output 1 scratch 1
  block 0
    transfer 1: input[0] -> scratch[0]
    sync
    transfer 1: scratch[0] -> scratch[0], output[0]
    sync
    transfer 1: scratch[0] -> scratch[0]
)"));
  verified(plan);
  const NamedPlan again = fromJson(toJson(plan));
  CHECK_NOTHROW(verified(again));
  CHECK(again.rankPlans[0].blocks.count == 1);
  CHECK(std::count_if(again.operations.begin(), again.operations.end(),
                      [](const Operation& operation) { return operation.kind == OperationKind::Transfer; }) == 2);
}

TEST_CASE("what has no name in the schema is refused with its place") {
  NamedPlan plan = fromJson(planWith({data("copy", {local("s", 0)}, {local("s", 1)})}).dump());
  for (Operand& operand : plan.operands) operand.form = Form::Packet;
  try {
    toJson(plan);
    CHECK(false);
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("rank 0, block 0, operation 0") != std::string::npos);
  }
}

TEST_CASE("a plan with a switch channel that does not exist is refused before it is rewritten") {
  NamedPlan plan = makeLibraryPlan("all_reduce_switch", {.ranks = 2, .inPlace = true});
  withoutSwitches(plan);
  for (Operand& operand : plan.operands)
    if (operand.access == Access::Switch) operand.channel = 10000;
  try {
    withoutSwitches(plan);
    CHECK(false);
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("the rank has no channel 10000; at rank 0, block 0") != std::string::npos);
  }
}

TEST_CASE("malformed plans are refused with rank, block, operation and key") {
  using Change = void (*)(Json&);
  const struct {
    Change change;
    const char* message;
  } cases[] = {
      {[](Json& json) { json.erase("name"); }, "key \"name\": missing"},
      {[](Json& json) { json["colour"] = 1; }, "key \"colour\": unknown"},
      {[](Json& json) { json["collective"] = "sum"; }, "key \"collective\": \"sum\" is unknown"},
      {[](Json& json) { json["protocol"] = "LL128"; }, "key \"protocol\""},
      {[](Json& json) { json["inplace"] = 1; }, "key \"inplace\": expected true or false"},
      {[](Json& json) { json["num_threads_per_block"] = 2048; }, "from 1 to 1024"},
      {[](Json& json) { json["max_message_size"] = -1; }, "key \"max_message_size\""},
      {[](Json& json) { json["min_message_size"] = 2, json["max_message_size"] = 1; }, "key \"min_message_size\""},
      {[](Json& json) { json["gpus"] = Json::array(); }, "key \"gpus\""},
      {[](Json& json) { json["gpus"] = std::vector(5000, json["gpus"][0]); }, "key \"gpus\": names 5000 ranks"},
      {[](Json& json) { json["gpus"][1]["id"] = 2; }, "rank 1: key \"id\""},
      {[](Json& json) { json["gpus"][1]["input_chunks"] = 9; }, "rank 1: key \"input_chunks\": expected 8"},
      {[](Json& json) { json["gpus"][1]["scratch_chunks"] = "many"; }, "rank 1: key \"scratch_chunks\""},
      {[](Json& json) { json["gpus"][1]["channels"][0]["connected_to"][1] = 2; }, "integers from 0 to 1"},
      {[](Json& json) { json["gpus"][1]["channels"][0]["connected_to"][1] = 1; }, "no channel to itself"},
      {[](Json& json) {
         Json& gpu = json["gpus"][0];
         gpu["channels"][0]["connected_to"] = std::vector<int>(40000, 1);
         gpu["threadblocks"][0]["ops"][0] = data("put", {local("i", 2)}, {remote(0, 5)}, "port", {0});
       },
       "key \"channel_ids\": 40000 is more than 32767"},
      {[](Json& json) {
         json["collective"] = "allgather", json["inplace"] = true;
         json["gpus"][0]["input_chunks"] = 1 << 24, json["gpus"][0]["output_chunks"] = 0;
       },
       "rank 0: key \"output_chunks\": 33554432 chunks are more than 16777216"},
      {[](Json& json) { json["gpus"][1]["channels"][0]["channel_type"] = "wire"; }, "no type of channel"},
      {[](Json& json) { json["gpus"][1]["channels"][2]["rank_groups"][0]["size"] = 3; }, "key \"size\""},
      {[](Json& json) { json["gpus"][1]["remote_buffers"][0]["type"] = "x"; }, "\"x\" is no buffer"},
      {[](Json& json) { json["gpus"][0]["threadblocks"][0]["id"] = 1; }, "rank 0, block 0: key \"id\""},
      {[](Json& json) { json["gpus"][0]["threadblocks"][0]["channels"][0]["channel_ids"][0] = 2; },
       "rank 0, block 0, key \"channels\", entry 0: key \"channel_ids\""},
      {[](Json& json) { json["gpus"][0]["threadblocks"][0]["ops"][0]["name"] = "putt"; },
       "rank 0, block 0, operation 0 (putt): key \"name\": unknown operation"},
      {[](Json& json) { json["gpus"][0]["threadblocks"][0]["ops"][0]["src_buff"][0].erase("size"); },
       "operation 0 (put), key \"src_buff\", entry 0: key \"size\": missing"},
      {[](Json& json) { json["gpus"][0]["threadblocks"][0]["ops"][0]["src_buff"][0]["size"] = 2; },
       "key \"dst_buff\": sizes of 2 and 1 chunks"},
      {[](Json& json) { json["gpus"][0]["threadblocks"][0]["ops"][0]["src_buff"][0]["index"] = 8; },
       "chunks 8 to 8 of buffer i of rank 0, which has 8"},
      {[](Json& json) { json["gpus"][0]["threadblocks"][0]["ops"][0]["dst_buff"][0]["buffer_id"] = 3; },
       "key \"buffer_id\": not among the 3 buffers"},
      {[](Json& json) { json["gpus"][0]["threadblocks"][0]["ops"][0]["dst_buff"][0] = local("o", 0); },
       "key \"dst_buff\", entry 0: key \"buffer_id\": missing"},
      {[](Json& json) { json["gpus"][0]["threadblocks"][0]["ops"][0]["reduce_op"] = "max"; }, "key \"reduce_op\""},
      {[](Json& json) {
         json["gpus"][0]["threadblocks"][0]["ops"][0]["tbg_info"] = {{"tb_id", 2}, {"tbg_size", 2}};
       },
       "key \"tb_id\": expected an integer from 0 to 1"},
      {[](Json& json) { json["gpus"][0]["threadblocks"][0]["ops"][0]["dst_buff"] = Json::array(); },
       "key \"dst_buff\": names no chunks"},
      {[](Json& json) { json["gpus"][0]["threadblocks"][0]["ops"][1]["channel_ids"][0] = 2; },
       "operation 1 (signal): key \"channel_ids\": 2 is not among the 2 memory channels"},
      {[](Json& json) { json["gpus"][0]["threadblocks"][0]["ops"][1]["channel_type"] = "switch"; },
       "key \"channel_type\": not possible"},
      {[](Json& json) { json["gpus"][0]["threadblocks"][0]["ops"][2]["iter_context"]["unit_size"] = 0; },
       "operation 2 (pipeline): key \"unit_size\""},
      {[](Json& json) {
         json["gpus"][0]["threadblocks"][0]["ops"][2]["iter_context"] = {{"unit_size", ~std::uint64_t{0}},
                                                                         {"num_chunks", 2}};
       },
       "operation 2 (pipeline): key \"unit_size\""},
      {[](Json& json) {
         json["gpus"][0]["threadblocks"][0]["ops"][2]["ops"][0] = {{"name", "what"}};
       },
       "operation 2 (pipeline), its operation 0 (what)"},
      {[](Json& json) {
         Json& loop = json["gpus"][0]["threadblocks"][0]["ops"][2];
         loop["ops"][0] = loop;
       },
       "loops cannot be nested"},
      {[](Json& json) { json["gpus"][0]["threadblocks"][0]["ops"][3]["semaphore_ids"][0] = 2; },
       "operation 3 (sem_acquire): key \"semaphore_ids\""},
      {[](Json& json) { json["buffer_alignment"] = 1000; }, "key \"buffer_alignment\": expected a power of two"},
      {[](Json& json) { json["gpus"][1]["id"] = 0; }, "rank 1: key \"id\": ranks are numbered"},
      {[](Json& json) { json["name"] = "\x1b[31m"; }, "plan: the name \"?[31m\""},
      {[](Json& json) { json["collective"] = std::string(1000, 'x'); }, "xxx...\" is unknown"},
      // What is not needed.
      {[](Json& json) { json["gpus"][0]["remote_buffers"][0]["access_channel_types"] = {"zzz"}; },
       "key \"access_channel_types\": \"zzz\" is no type of channel"},
      {[](Json& json) { json["gpus"][0]["remote_buffers"][0]["access_channel_types"] = {3}; },
       "key \"access_channel_types\": expected strings"},
      {[](Json& json) { json["gpus"][0]["threadblocks"][0]["ops"][0]["channel_ids"] = "nonsense"; },
       "operation 0 (put): key \"channel_ids\": expected a list"},
      {[](Json& json) { json["gpus"][0]["threadblocks"][0]["ops"][0]["channel_ids"] = {99}; },
       "operation 0 (put): key \"channel_ids\": 99 is not among"},
      {[](Json& json) { json["gpus"][0]["channels"] = Json::array(); }, "key \"channel_ids\": expected an empty list"}};
  const std::vector<Json> operations = {data("put", {local("i", 2)}, {remote(0, 5)}, "memory"),
                                        {{"name", "signal"}, {"channel_ids", {0}}, {"channel_type", "memory"}},
                                        {{"name", "pipeline"},
                                         {"iter_context", {{"unit_size", 4096}, {"num_chunks", 1}}},
                                         {"ops", Json::array({{{"name", "nop"}}})}},
                                        {{"name", "sem_acquire"}, {"semaphore_ids", {0}}}};
  REQUIRE(errorOf(planWith(operations)).empty());
  for (const auto& mistake : cases) {
    Json plan = planWith(operations);
    mistake.change(plan);
    const std::string message = errorOf(plan);
    CHECK_MESSAGE(message.find(mistake.message) != std::string::npos, message, " / ", mistake.message);
  }
  Json custom = planWith({});
  custom["collective"] = "custom";
  for (const std::int64_t chunk : {std::int64_t{1}, std::int64_t{1} << 32, std::int64_t{-1}}) {
    custom["expectations"] = {{{"rank", 0}, {"chunk", 0}, {"contributions", {{1, chunk}}}}};
    CHECK((errorOf(custom).find("expected [rank, chunk]") != std::string::npos) == (chunk != 1));
  }
  CHECK_THROWS_AS(fromJson("{\"name\": "), Error);
  CHECK_THROWS_AS(fromJson("[]"), Error);
}

}  // namespace
}  // namespace mscclpp::plan
