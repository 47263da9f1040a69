// The compiled collectives, on buffers by address; CommGroup has them on arrays.
#include "mscclpp/kernels/collectives.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "module.hpp"

namespace mscclpp::python {

namespace {

CUstream_st* toStream(std::uintptr_t stream) {
  return static_cast<CUstream_st*>(toPointer(stream));
}

// The registration of a buffer, until it is ended.
class Registration {
 public:
  explicit Registration(RegisteredBuffers::Handle handle) : handle_(std::move(handle)) {}
  void end() { handle_.reset(); }

 private:
  std::optional<RegisteredBuffers::Handle> handle_;
};

// One rule for all collectives: a call as a value, whose members Python gives by name.
CollectiveCall toCall(CollectiveType collective, std::uintptr_t input, std::uintptr_t output, std::size_t count,
                      DataType type, ReduceOp op, int root, int destination, int origin, std::size_t receivedCount,
                      std::uintptr_t stream, std::string algorithm) {
  return {.collective = collective,
          .input = toPointer(input),
          .output = toPointer(output),
          .count = count,
          .type = type,
          .reduction = op,
          .root = root,
          .destination = destination,
          .origin = origin,
          .receivedCount = receivedCount,
          .stream = toStream(stream),
          .algorithm = std::move(algorithm)};
}

void bindCall(nb::module_& module) {
  nb::enum_<CollectiveType>(module, "CollectiveType", "The compiled collectives.")
      .value("all_reduce", CollectiveType::AllReduce)
      .value("all_gather", CollectiveType::AllGather)
      .value("reduce_scatter", CollectiveType::ReduceScatter)
      .value("all_to_all", CollectiveType::AllToAll)
      .value("broadcast", CollectiveType::Broadcast)
      .value("reduce", CollectiveType::Reduce)
      .value("gather", CollectiveType::Gather)
      .value("scatter", CollectiveType::Scatter)
      .value("send_receive", CollectiveType::SendReceive);
  nb::class_<CollectiveCall>(
      module, "CollectiveCall",
      "A call of a collective. input, output, stream: addresses; 0 where the rank has none. count: elements of the "
      "message; of a rank's contribution (all_gather, gather), of a rank's result (reduce_scatter, scatter), or of the "
      "part from one rank for another (all_to_all). destination, origin, received_count: of a send_receive. algorithm: "
      "one of Collectives.algorithms(), or empty to select it by size.")
      .def(nb::new_(&toCall), "collective"_a, nb::kw_only(), "input"_a = 0, "output"_a = 0, "count"_a,
           "dtype"_a = DataType::FLOAT32, "op"_a = ReduceOp::SUM, "root"_a = 0, "destination"_a = -1, "origin"_a = -1,
           "received_count"_a = 0, "stream"_a = 0, "algorithm"_a = "");
}

}  // namespace

void bindCollectives(nb::module_& module) {
  bindCall(module);
  nb::class_<Registration>(module, "Registration", "A buffer that all ranks have mapped, until end().")
      .def("end", &Registration::end, Unlocked(),
           "Called by each rank between the same calls of collectives, before the memory is freed.");
  auto collectives = nb::class_<Collectives>(
      module, "Collectives",
      "Collectives over the ranks of a communicator, all on one host. On GPUs calls are enqueued on a stream; on CPU "
      "ranks they return when they are done. One thread at a time calls an object. docs/collectives.md has the rest.");
  nb::enum_<Collectives::Algorithms>(collectives, "Algorithms", "The algorithms to set up.")
      .value("Selected", Collectives::Algorithms::Selected, "Those that are selected by size.")
      .value("All", Collectives::Algorithms::All);
  collectives
      .def(nb::new_([](std::shared_ptr<Communicator> communicator, DeviceType deviceType,
                       Collectives::Algorithms algorithms, int maxBlocks) {
             return makeShared<Collectives>(std::move(communicator), deviceType, algorithms, maxBlocks);
           }),
           "communicator"_a, "device_type"_a, "algorithms"_a = Collectives::Algorithms::Selected, "max_blocks"_a = 0,
           Unlocked())
      .def(
          "register_buffer",
          [](Collectives& self, std::uintptr_t data, std::size_t bytes) {
            return makeShared<Registration>(self.registerBuffer(toPointer(data), bytes));
          },
          "data"_a, "bytes"_a, Unlocked(),
          "Registers memory for outputs, of the same size on every rank. Called by all ranks, which then pass outputs "
          "at the same offset in it, or none of them does.")
      .def("run", static_cast<void (Collectives::*)(const CollectiveCall&)>(&Collectives::run), "call"_a, Unlocked(),
           "Performs a call. Called by all ranks, in the same order as their other collectives; a send_receive by the "
           "two ranks concerned. Raises InvalidUsage for wrong arguments and, after a failure, what check() raises.")
      .def("check", &Collectives::check, Unlocked(),
           "Raises RemoteError, Timeout or Aborted if a wait of an earlier call failed; on GPUs synchronise the stream "
           "before.")
      .def("is_concurrent", &Collectives::isConcurrent)
      .def("memory_bytes", &Collectives::memoryBytes)
      .def("algorithms", &Collectives::algorithms, "collective"_a = CollectiveType::AllReduce,
           "The names of the algorithms that were set up.")
      .def("selected_algorithm", &Collectives::selectedAlgorithm, "call"_a)
      .def("supports", &Collectives::supports, "call"_a);
}

}  // namespace mscclpp::python
