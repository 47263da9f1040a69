// MSCCL's XML: what chunk programs write, read again; algorithms by hand; what is refused.
#include "mscclpp/kernels/plan/xml.hpp"

#include <doctest/doctest.h>

#include "chunk_programs.hpp"
#include "kernels/plan/draft.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/kernels/plan/library.hpp"
#include "mscclpp/kernels/plan/verify.hpp"

namespace mscclpp::plan {
namespace {

std::string messageOf(const std::string& xml) {
  try {
    verified(fromXml(xml));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("the XML of a chunk program is read as the same plan") {
  using namespace mscclpp::msccl;
  for (const Protocol protocol : {Protocol::Simple, Protocol::LL}) {
    const auto options = [&](const Collective& collective, int instances) {
      return ProgramOptions{.name = "test", .collective = collective, .instances = instances, .protocol = protocol};
    };
    for (const int instances : {1, 2}) {
      const MSCCLProgram programs[] = {ringAllGather(options(AllGather(3), instances)),
                                       ringAllReduce(options(AllReduce(4, 2, true), instances)),
                                       allPairsAllReduce(options(AllReduce(3, 1, true), instances))};
      for (const MSCCLProgram& program : programs) {
        const std::string xml = program.toXml();
        CHECK(messageOf(xml) == "");
        Draft expected = draftOf(program.compile()), found = draftOf(fromXml(xml));
        REQUIRE(found.ranks.size() == expected.ranks.size());
        for (std::size_t r = 0; r < found.ranks.size(); ++r) {
          CHECK(found.ranks[r].channels == expected.ranks[r].channels);
          REQUIRE(found.ranks[r].blocks.size() == expected.ranks[r].blocks.size());
        }
        CHECK(found.header.chunksPerPart == expected.header.chunksPerPart);
        CHECK(found.name == "test");
      }
    }
  }
}

/// Rank 0's chunk to rank 1 and back, added up there by a second block.
std::string algorithm(const std::string& changed = "", const std::string& change = "") {
  std::string xml = R"(<algo name="pair" proto="Simple" nchannels="1" nchunksperloop="1" ngpus="2" coll="allreduce"
 inplace="0" nthreads="256">
 <gpu id="0" i_chunks="1" o_chunks="1" s_chunks="1">
  <tb id="0" send="1" recv="1" chan="0">
   <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
   <step s="1" type="r" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/>
  </tb>
  <tb id="1" send="-1" recv="-1" chan="-1">
   <step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
   <step s="1" type="nop" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="-1" cnt="0" depid="0" deps="1" hasdep="0"/>
   <step s="2" type="re" srcbuf="s" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
  </tb>
 </gpu>
 <gpu id="1" i_chunks="1" o_chunks="1" s_chunks="0">
  <tb id="0" send="0" recv="0" chan="0">
   <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
   <step s="1" type="rrc" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
  </tb>
 </gpu>
</algo>)";
  if (!changed.empty()) {
    const std::size_t at = xml.find(changed);
    REQUIRE(at != std::string::npos);
    xml.replace(at, changed.size(), change);
  }
  return xml;
}

TEST_CASE("an algorithm with dependences and a sum") {
  CHECK(messageOf(algorithm()) == "");
  const NamedPlan plan = fromXml(algorithm());
  CHECK(plan.threadsPerBlock == 256);
  CHECK(plan.rankPlans[0].semaphores.count == 1);
  // Without its dependence it is a race.
  const std::string race = messageOf(algorithm(R"(depid="0" deps="1")", R"(depid="-1" deps="-1")"));
  CHECK_MESSAGE(race.find("scratch chunk 0 of rank 0") != std::string::npos, race);
}

TEST_CASE("the root of a collective is read as it was written") {
  using namespace mscclpp::msccl;
  for (const CollectiveKind kind :
       {CollectiveKind::Broadcast, CollectiveKind::Reduce, CollectiveKind::Gather, CollectiveKind::Scatter}) {
    for (const int root : {0, 2}) {
      constexpr int ranks = 3;
      MSCCLProgram program({.name = "rooted", .collective = {kind, ranks, 2, false, root}});
      const bool fromRoot = kind == CollectiveKind::Broadcast || kind == CollectiveKind::Scatter;
      for (int i = 0; i < ranks; ++i) {
        const int rank = (root + i) % ranks;  // the root's own part is the first of a sum
        const int part = 2 * rank;
        if (fromRoot) {
          const int from = kind == CollectiveKind::Scatter ? part : 0;
          program.chunk(root, BufferKind::Input, from, 2).copy(rank, BufferKind::Output, 0);
        } else if (kind == CollectiveKind::Gather || i == 0) {
          const int to = kind == CollectiveKind::Gather ? part : 0;
          program.chunk(rank, BufferKind::Input, 0, 2).copy(root, BufferKind::Output, to);
        } else {
          program.chunk(root, BufferKind::Output, 0, 2).reduce(program.chunk(rank, BufferKind::Input, 0, 2));
        }
      }
      for (const std::string& xml : {program.toXml(), toXml(program.compile())}) {
        CAPTURE(xml);
        REQUIRE(messageOf(xml) == "");
        const NamedPlan plan = fromXml(xml);
        CHECK(plan.collective == kind);
        CHECK(plan.root == root);
      }
    }
  }
  const std::string xml = algorithm("coll=\"allreduce\"", "coll=\"reduce\" root=\"2\"");
  CHECK(messageOf(xml).find("attribute \"root\": \"2\"") != std::string::npos);
}

TEST_CASE("plans of one-sided operations are written as algorithms") {
  for (const LibraryPlan& entry : libraryPlans()) {
    for (const bool inPlace : {false, true}) {
      const LibraryArguments arguments{.ranks = 4, .ranksPerNode = 2, .inPlace = inPlace};
      if (!entry.refuses(arguments).empty() || entry.collective == CollectiveKind::Custom) continue;
      const NamedPlan plan = makeLibraryPlan(entry.name, arguments);
      if (entry.name == std::string("all_reduce_switch")) {
        CHECK_THROWS_WITH_AS(toXml(plan), doctest::Contains("MSCCL's XML has no switch channels"), Error);
      } else {
        CHECK_MESSAGE(messageOf(toXml(plan)) == "", std::string(entry.name), " in place ", inPlace);
      }
    }
  }
}

TEST_CASE("the range of messages is read and written") {
  const NamedPlan plan = fromXml(algorithm("<algo ", "<algo minBytes=\"1024\" maxBytes=\"68719476736\" "));
  CHECK(plan.minBytes == 1024);
  CHECK(plan.maxBytes == std::uint64_t{64} << 30);
  const NamedPlan again = fromXml(toXml(plan));
  CHECK(again.minBytes == plan.minBytes);
  CHECK(again.maxBytes == plan.maxBytes);
}

TEST_CASE("malformed algorithms are refused with gpu, block, step and attribute") {
  const struct {
    std::string from, to, message;
  } cases[] = {{"<algo ", "<plan ", "this is not XML"},
               {"coll=\"allreduce\"", "coll=\"sum\"", "attribute \"coll\": \"sum\" is unknown"},
               {"ngpus=\"2\"", "ngpus=\"3\"", "2 gpus; \"ngpus\" says 3"},
               {"proto=\"Simple\"", "proto=\"NVLS\"", "attribute \"proto\""},
               {"nthreads=\"256\"", "nthreads=\"many\"", "attribute \"nthreads\": \"many\""},
               {"gpu id=\"1\"", "gpu id=\"0\"", "gpu 1: attribute \"id\""},
               {"tb id=\"1\"", "tb id=\"2\"", "gpu 0, block 1: attribute \"id\""},
               {"type=\"cpy\"", "type=\"copy\"", "gpu 0, block 1, step 0: attribute \"type\": \"copy\" is unknown"},
               {"type=\"cpy\" srcbuf=\"i\"", "type=\"cpy\" srcbuf=\"x\"", "attribute \"srcbuf\": \"x\" is no buffer"},
               {"type=\"re\" srcbuf=\"s\" srcoff=\"0\"", "type=\"re\" srcbuf=\"s\" srcoff=\"1\"",
                "attribute \"srcoff\": chunks 1 to 1 of buffer s, which has 1"},
               {"type=\"cpy\" srcbuf=\"i\" ", "type=\"cpy\" ", "attribute \"srcbuf\": missing"},
               {"step s=\"2\"", "step s=\"3\"", "step 2: attribute \"s\""},
               {"depid=\"0\" deps=\"1\"", "depid=\"0\" deps=\"5\"", "depends on block 0, step 5, which does not exist"},
               {"<tb id=\"0\" send=\"0\" recv=\"0\"", "<tb id=\"0\" send=\"-1\" recv=\"0\"", "sends to no other rank"},
               {"type=\"rrc\"", "type=\"nop\"", "sends 1 messages to rank 1 on channel 0, which receives 0"},
               {"<step s=\"0\"", "<move s=\"0\"", "gpu 0, block 0: element \"move\": expected <step>"},
               {"cnt=\"1\"", "cnt=\"0\"", "attribute \"cnt\""},
               {"<algo ", "<algo minBytes=\"2\" maxBytes=\"1\" ", "\"minBytes\": is greater than"},
               {"<algo ", "<algo minBytes=\"-1\" ", "attribute \"minBytes\": \"-1\""},
               {"<algo ", "<algo maxBytes=\"1x\" ", "attribute \"maxBytes\": \"1x\""},
               {"nchannels=\"1\"", "nchannels=\"zz\"", "attribute \"nchannels\""},
               {"hasdep=\"1\"", "hasdep=\"no\"", "attribute \"hasdep\": \"no\""},
               {"o_chunks=\"1\"", "o_chunks=\"-7\"", "attribute \"o_chunks\": \"-7\""},
               {"o_chunks=\"1\"", "o_chunks=\"3\"", "attribute \"o_chunks\": 3; by \"nchunksperloop\" the rank has 1"}};
  for (const auto& mistake : cases) {
    std::string xml = algorithm(mistake.from, mistake.to);
    const std::string message = messageOf(xml);
    CHECK_MESSAGE(message.find(mistake.message) != std::string::npos, message, " / ", mistake.message);
  }
  CHECK(messageOf("<plan/>").find("no element <algo>") != std::string::npos);
}

TEST_CASE("steps that wait for each other are refused") {
  const std::string xml = R"(<algo name="cycle" nchunksperloop="1" ngpus="2" coll="allreduce">
 <gpu id="0"><tb id="0" send="1" recv="1" chan="0">
   <step s="0" type="r" dstbuf="o" dstoff="0" cnt="1"/><step s="1" type="s" srcbuf="i" srcoff="0" cnt="1"/>
 </tb></gpu>
 <gpu id="1"><tb id="0" send="0" recv="0" chan="0">
   <step s="0" type="r" dstbuf="o" dstoff="0" cnt="1"/><step s="1" type="s" srcbuf="i" srcoff="0" cnt="1"/>
 </tb></gpu></algo>)";
  CHECK(messageOf(xml).find("waits for itself") != std::string::npos);
}

}  // namespace
}  // namespace mscclpp::plan
