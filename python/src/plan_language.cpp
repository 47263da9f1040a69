// The classes of programs in MSCCL++'s language, which mscclpp.language wraps under the names that users know.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "module.hpp"
#include "mscclpp/kernels/plan/language.hpp"

namespace mscclpp::python {

namespace {

namespace language = mscclpp::language;
using language::Chunk;
using language::CollectiveProgram;
using language::SyncType;
using plan::Origin;

/// Thread blocks that do an operation together; one, or those of a group.
language::Blocks toBlocks(const std::vector<int>& blocks) {
  return language::ThreadBlockGroup(blocks);
}

void bindEnumerations(nb::module_& module) {
  nb::enum_<SyncType>(module, "SyncType",
                      "Whether the threads of a block wait for each other before and after a synchronisation.")
      .value("none", SyncType::None)
      .value("before", SyncType::Before)
      .value("after", SyncType::After)
      .value("both", SyncType::Both);
  nb::enum_<plan::BufferKind>(module, "BufferType", "The buffers of a rank.")
      .value("input", plan::BufferKind::Input)
      .value("output", plan::BufferKind::Output)
      .value("scratch", plan::BufferKind::Scratch);
  nb::enum_<language::ReplicationPolicy>(module, "ReplicationPolicy", "What `instances` does.")
      .value("interleaved", language::ReplicationPolicy::Interleaved, "Copies of the program share the data.")
      .value("none", language::ReplicationPolicy::None, "The program is made once.");
  nb::enum_<plan::CollectiveKind>(module, "CollectiveKind", "What a plan computes.")
      .value("allreduce", plan::CollectiveKind::AllReduce)
      .value("allgather", plan::CollectiveKind::AllGather)
      .value("reducescatter", plan::CollectiveKind::ReduceScatter)
      .value("alltoall", plan::CollectiveKind::AllToAll)
      .value("broadcast", plan::CollectiveKind::Broadcast)
      .value("reduce", plan::CollectiveKind::Reduce)
      .value("gather", plan::CollectiveKind::Gather)
      .value("scatter", plan::CollectiveKind::Scatter)
      .value("sendrecv", plan::CollectiveKind::SendReceive)
      .value("custom", plan::CollectiveKind::Custom);
}

void bindBuffers(nb::module_& module) {
  nb::class_<Chunk>(module, "Chunk", "Some chunks of a buffer of a rank.")
      .def_ro("rank", &Chunk::rank)
      .def_ro("buffer", &Chunk::buffer)
      .def_ro("index", &Chunk::index, "The first one.")
      .def_ro("size", &Chunk::size, "How many.")
      .def("__repr__", [](const Chunk& self) {
        constexpr const char* names[] = {"input", "output", "scratch"};
        return std::string("<Chunk: rank ") + std::to_string(self.rank) + ", " + names[static_cast<int>(self.buffer)] +
               "[" + std::to_string(self.index) + ":" + std::to_string(self.index + self.size) + "]>";
      });
  using language::Buffer;
  nb::class_<Buffer>(module, "ProgramBuffer", "A buffer of a rank in a program.")
      .def(
          "__init__",
          [](Buffer* self, CollectiveProgram& program, int rank, int size, std::string origin) {
            new (self) Buffer(program, rank, size, {std::move(origin)});
          },
          "program"_a, "rank"_a, "size"_a, "origin"_a)
      .def_prop_ro("rank", &Buffer::rank)
      .def_prop_ro("size", &Buffer::size)
      .def_prop_ro("type", &Buffer::type)
      .def(
          "slice",
          [](const Buffer& self, int begin, int end, std::string origin) {
            return self.slice(begin, end, {std::move(origin)});
          },
          "begin"_a, "end"_a, "origin"_a);
}

void bindRank(nb::module_& module) {
  using language::Rank;
  nb::class_<Rank>(module, "ProgramRank", "What a rank does with its own memory.")
      .def(
          "__init__",
          [](Rank* self, CollectiveProgram& program, int rank, std::string origin) {
            new (self) Rank(program, rank, {std::move(origin)});
          },
          "program"_a, "rank"_a, "origin"_a, nb::keep_alive<1, 2>())
      .def("get_input_buffer", &Rank::getInputBuffer)
      .def("get_output_buffer", &Rank::getOutputBuffer)
      .def(
          "copy",
          [](Rank& self, const Chunk& dst, const Chunk& src, const std::vector<int>& blocks, std::string origin) {
            self.copy(dst, src, toBlocks(blocks), {std::move(origin)});
          },
          "dst"_a, "src"_a, "blocks"_a, "origin"_a)
      .def(
          "copy_packets",
          [](Rank& self, const Chunk& dst, const Chunk& src, const std::vector<int>& blocks, std::string origin) {
            self.copyPackets(dst, src, toBlocks(blocks), {std::move(origin)});
          },
          "dst"_a, "src"_a, "blocks"_a, "origin"_a)
      .def(
          "unpack_packets",
          [](Rank& self, const Chunk& dst, const Chunk& src, const std::vector<int>& blocks, std::string origin) {
            self.unpackPackets(dst, src, toBlocks(blocks), {std::move(origin)});
          },
          "dst"_a, "src"_a, "blocks"_a, "origin"_a)
      .def(
          "reduce",
          [](Rank& self, const Chunk& src, const std::vector<Chunk>& others, const std::vector<int>& blocks,
             const std::optional<Chunk>& dst, bool packet,
             std::string origin) { self.reduce(src, others, toBlocks(blocks), dst, packet, {std::move(origin)}); },
          "src"_a, "others"_a, "blocks"_a, "dst"_a.none(), "packet"_a, "origin"_a)
      .def(
          "barrier",
          [](Rank& self, const std::vector<int>& blocks, std::string origin) {
            self.barrier(blocks, {std::move(origin)});
          },
          "blocks"_a, "origin"_a);
  using language::Semaphore;
  nb::class_<Semaphore>(module, "ProgramSemaphore", "A counter between blocks of a rank.")
      .def(
          "__init__",
          [](Semaphore* self, CollectiveProgram& program, int rank, int initialValue, std::string origin) {
            new (self) Semaphore(program, rank, initialValue, {std::move(origin)});
          },
          "program"_a, "rank"_a, "initial_value"_a, "origin"_a, nb::keep_alive<1, 2>())
      .def(
          "acquire",
          [](Semaphore& self, int block, SyncType sync, std::string origin) {
            self.acquire(block, sync, {std::move(origin)});
          },
          "block"_a, "sync"_a, "origin"_a)
      .def(
          "release",
          [](Semaphore& self, int block, SyncType sync, std::string origin) {
            self.release(block, sync, {std::move(origin)});
          },
          "block"_a, "sync"_a, "origin"_a);
}

/// The methods that move chunks have one signature.
template <class C, class Base>
auto transfer(void (Base::*method)(const Chunk&, const Chunk&, const language::Blocks&, Origin)) {
  return [method](C& self, const Chunk& dst, const Chunk& src, const std::vector<int>& blocks, std::string origin) {
    (self.*method)(dst, src, toBlocks(blocks), {std::move(origin)});
  };
}

template <class C>
nb::class_<C> bindChannel(nb::module_& module, const char* name, const char* text) {
  return nb::class_<C>(module, name, text)
      .def(
          "__init__",
          [](C* self, CollectiveProgram& program, int destination, int source, std::string origin) {
            new (self) C(program, destination, source, {std::move(origin)});
          },
          "program"_a, "destination"_a, "source"_a, "origin"_a, nb::keep_alive<1, 2>())
      .def(
          "signal",
          [](C& self, int block, SyncType sync, bool relaxed, std::string origin) {
            self.signal(block, sync, relaxed, {std::move(origin)});
          },
          "block"_a, "sync"_a, "relaxed"_a, "origin"_a)
      .def(
          "wait",
          [](C& self, int block, SyncType sync, bool relaxed, std::string origin) {
            self.wait(block, sync, relaxed, {std::move(origin)});
          },
          "block"_a, "sync"_a, "relaxed"_a, "origin"_a)
      .def("put", transfer<C>(&C::put), "dst"_a, "src"_a, "blocks"_a, "origin"_a)
      .def("put_packets", transfer<C>(&C::putPackets), "dst"_a, "src"_a, "blocks"_a, "origin"_a)
      .def("read_put_packets", transfer<C>(&C::readPutPackets), "dst"_a, "src"_a, "blocks"_a, "origin"_a);
}

void bindProgramChannels(nb::module_& module) {
  using language::MemoryChannel;
  using language::PortChannel;
  using language::SwitchChannel;
  bindChannel<MemoryChannel>(module, "ProgramMemoryChannel", "Loads and stores of a peer's memory.")
      .def("get", transfer<MemoryChannel>(&MemoryChannel::get), "dst"_a, "src"_a, "blocks"_a, "origin"_a)
      .def(
          "reduce",
          [](MemoryChannel& self, const Chunk& src, const std::vector<Chunk>& others, const std::vector<int>& blocks,
             const std::optional<Chunk>& dst,
             std::string origin) { self.reduce(src, others, toBlocks(blocks), dst, {std::move(origin)}); },
          "src"_a, "others"_a, "blocks"_a, "dst"_a.none(), "origin"_a);
  bindChannel<PortChannel>(module, "ProgramPortChannel", "Writes by a proxy.")
      .def(
          "flush",
          [](PortChannel& self, int block, SyncType sync, std::string origin) {
            self.flush(block, sync, {std::move(origin)});
          },
          "block"_a, "sync"_a, "origin"_a)
      .def("put_with_signal", transfer<PortChannel>(&PortChannel::putWithSignal), "dst"_a, "src"_a, "blocks"_a,
           "origin"_a)
      .def("put_with_signal_and_flush", transfer<PortChannel>(&PortChannel::putWithSignalAndFlush), "dst"_a, "src"_a,
           "blocks"_a, "origin"_a);
  nb::class_<SwitchChannel::AtRank>(module, "ProgramSwitchChannelAtRank", "What one rank does with a switch channel.")
      .def(
          "reduce",
          [](SwitchChannel::AtRank& self, int offset, int size, const Chunk& dst, const std::vector<int>& blocks,
             std::string origin) { self.reduce(offset, size, dst, toBlocks(blocks), {std::move(origin)}); },
          "offset"_a, "size"_a, "dst"_a, "blocks"_a, "origin"_a)
      .def(
          "broadcast",
          [](SwitchChannel::AtRank& self, const Chunk& src, int offset, int size, const std::vector<int>& blocks,
             std::string origin) { self.broadcast(src, offset, size, toBlocks(blocks), {std::move(origin)}); },
          "src"_a, "offset"_a, "size"_a, "blocks"_a, "origin"_a)
      .def(
          "broadcast_packets",
          [](SwitchChannel::AtRank& self, const Chunk& src, int offset, int size, const std::vector<int>& blocks,
             std::string origin) { self.broadcastPackets(src, offset, size, toBlocks(blocks), {std::move(origin)}); },
          "src"_a, "offset"_a, "size"_a, "blocks"_a, "origin"_a);
  nb::class_<SwitchChannel>(module, "ProgramSwitchChannel", "The same buffer of several ranks, through a switch.")
      .def(
          "__init__",
          [](SwitchChannel* self, CollectiveProgram& program, std::vector<int> ranks, plan::BufferKind buffer,
             std::string origin) { new (self) SwitchChannel(program, std::move(ranks), buffer, {std::move(origin)}); },
          "program"_a, "ranks"_a, "buffer"_a, "origin"_a, nb::keep_alive<1, 2>())
      .def(
          "at_rank",
          [](const SwitchChannel& self, int rank, std::string origin) {
            return self.atRank(rank, {std::move(origin)});
          },
          "rank"_a, "origin"_a, nb::keep_alive<0, 1>());
}

}  // namespace

void bindPlanLanguage(nb::module_& module) {
  bindEnumerations(module);
  using plan::Collective;
  nb::class_<Collective>(module, "ProgramCollective", "What a program computes, with the chunks of its buffers.")
      .def(
          "__init__",
          [](Collective* self, plan::CollectiveKind kind, int ranks, int chunkFactor, bool inPlace, int root,
             int inputChunks, int outputChunks) {
            new (self) Collective{kind, ranks, chunkFactor, inPlace, root, inputChunks, outputChunks};
          },
          "kind"_a, "ranks"_a, "chunk_factor"_a = 1, "in_place"_a = false, "root"_a = 0, "input_chunks"_a = 0,
          "output_chunks"_a = 0);
  nb::class_<CollectiveProgram>(module, "ProgramRecorder", "A program in MSCCL++'s language, for all ranks.")
      .def(
          "__init__",
          [](CollectiveProgram* self, std::string name, const Collective& collective, int ranks, bool inPlace,
             int instances, std::string protocol, bool fusion, bool autoSync, language::ReplicationPolicy replication,
             bool reuseResources, int threads, bool doubleScratch, int alignment, std::uint64_t minBytes,
             std::uint64_t maxBytes, std::string origin) {
            new (self) CollectiveProgram({.name = std::move(name),
                                          .collective = collective,
                                          .worldSize = ranks,
                                          .inPlace = inPlace,
                                          .instances = instances,
                                          .protocol = std::move(protocol),
                                          .instrFusion = fusion,
                                          .autoSync = autoSync,
                                          .replicationPolicy = replication,
                                          .reuseResources = reuseResources,
                                          .numThreadsPerBlock = threads,
                                          .useDoubleScratchBuffer = doubleScratch,
                                          .bufferAlignment = alignment,
                                          .minMessageSize = minBytes,
                                          .maxMessageSize = maxBytes},
                                         {std::move(origin)});
          },
          "name"_a, "collective"_a, "ranks"_a, "in_place"_a, "instances"_a, "protocol"_a, "fusion"_a, "auto_sync"_a,
          "replication"_a, "reuse_resources"_a, "threads"_a, "double_scratch"_a, "alignment"_a, "min_bytes"_a,
          "max_bytes"_a, "origin"_a)
      .def("compile", &CollectiveProgram::compile, Unlocked())
      .def("to_json", &CollectiveProgram::toJson, Unlocked());
  bindBuffers(module);
  bindRank(module);
  bindProgramChannels(module);
  using language::LoopIterationContext;
  nb::class_<LoopIterationContext>(module, "ProgramLoop", "The loop that is open in a program.")
      .def(
          "__init__",
          [](LoopIterationContext* self, CollectiveProgram& program, std::uint64_t unit, int chunks,
             std::string origin) { new (self) LoopIterationContext(program, unit, chunks, {std::move(origin)}); },
          "program"_a, "unit"_a, "num_chunks"_a, "origin"_a, nb::keep_alive<1, 2>())
      .def("end", &LoopIterationContext::end);
}

}  // namespace mscclpp::python
