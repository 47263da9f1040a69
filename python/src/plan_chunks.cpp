// The classes of chunk programs, MSCCL's language, which mscclpp.language.msccl wraps.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "module.hpp"
#include "mscclpp/kernels/plan/chunk_program.hpp"

namespace mscclpp::python {

void bindPlanChunks(nb::module_& module) {
  using msccl::ChunkRef;
  using msccl::MSCCLProgram;
  nb::enum_<msccl::Protocol>(module, "ChunkProtocol", "How a chunk program moves data.")
      .value("Simple", msccl::Protocol::Simple)
      .value("LL", msccl::Protocol::LL)
      .value("LL128", msccl::Protocol::LL128);
  nb::enum_<msccl::ThreadblockPolicy>(module, "ThreadblockPolicy", "Who assigns thread blocks.")
      .value("auto", msccl::ThreadblockPolicy::Automatic)
      .value("manual", msccl::ThreadblockPolicy::Manual, "Each operation names its blocks.");
  nb::class_<ChunkRef>(module, "ChunkReference", "Some chunks, as they are at a point of a program.")
      .def_prop_ro("rank", &ChunkRef::rank)
      .def_prop_ro("buffer", [](const ChunkRef& self) { return self.buffer(); })
      .def_prop_ro("index", &ChunkRef::index)
      .def_prop_ro("size", &ChunkRef::size)
      .def(
          "copy",
          [](const ChunkRef& self, int dst, std::string buffer, int index, int sendtb, int recvtb, int ch,
             std::string origin) {
            return self.copy(dst, std::move(buffer), index, {sendtb, recvtb, ch}, {std::move(origin)});
          },
          "dst"_a, "buffer"_a, "index"_a, "sendtb"_a, "recvtb"_a, "ch"_a, "origin"_a, nb::keep_alive<0, 1>())
      .def(
          "reduce",
          [](ChunkRef& self, const ChunkRef& other, int sendtb, int recvtb, int ch, std::string origin) {
            return self.reduce(other, {sendtb, recvtb, ch}, {std::move(origin)});
          },
          "other"_a, "sendtb"_a, "recvtb"_a, "ch"_a, "origin"_a, nb::keep_alive<0, 1>())
      .def(
          "split",
          [](const ChunkRef& self, int parts, std::string origin) { return self.split(parts, {std::move(origin)}); },
          "parts"_a, "origin"_a)
      .def(
          "group",
          [](const ChunkRef& self, const ChunkRef& other, std::string origin) {
            return self.group(other, {std::move(origin)});
          },
          "other"_a, "origin"_a, nb::keep_alive<0, 1>());
  nb::class_<MSCCLProgram>(module, "ChunkProgram", "A program of chunks of all ranks.")
      .def(
          "__init__",
          [](MSCCLProgram* self, std::string name, const plan::Collective& collective, int instances,
             msccl::Protocol protocol, msccl::ThreadblockPolicy policy, bool interleaved, bool fusion, int ranksPerNode,
             int threads, std::string origin) {
            new (self) MSCCLProgram({.name = std::move(name),
                                     .collective = collective,
                                     .instances = instances,
                                     .protocol = protocol,
                                     .threadblockPolicy = policy,
                                     .interleavedReplication = interleaved,
                                     .instrFusion = fusion,
                                     .ranksPerNode = ranksPerNode,
                                     .threadsPerBlock = threads},
                                    {std::move(origin)});
          },
          "name"_a, "collective"_a, "instances"_a, "protocol"_a, "policy"_a, "interleaved"_a, "fusion"_a,
          "ranks_per_node"_a, "threads"_a, "origin"_a)
      .def(
          "chunk",
          [](const MSCCLProgram& self, int rank, std::string buffer, int index, int size, std::string origin) {
            return self.chunk(rank, std::move(buffer), index, size, {std::move(origin)});
          },
          "rank"_a, "buffer"_a, "index"_a, "size"_a, "origin"_a, nb::keep_alive<0, 1>())
      .def(
          "holds",
          [](const MSCCLProgram& self, int rank, std::string buffer, int index, int size, std::string origin) {
            return self.holds(rank, std::move(buffer), index, size, {std::move(origin)});
          },
          "rank"_a, "buffer"_a, "index"_a, "size"_a, "origin"_a)
      .def(
          "expect",
          [](MSCCLProgram& self, int rank, int index, const std::vector<std::pair<int, int>>& contributions,
             std::string origin) { self.expect(rank, index, contributions, {std::move(origin)}); },
          "rank"_a, "index"_a, "contributions"_a, "origin"_a)
      .def("compile", &MSCCLProgram::compile, Unlocked())
      .def("check", &MSCCLProgram::check, Unlocked())
      .def("to_xml", &MSCCLProgram::toXml, Unlocked());
}

}  // namespace mscclpp::python
