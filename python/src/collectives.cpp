// The compiled collectives, on buffers by address; CommGroup has them on arrays.
#include "mscclpp/kernels/collectives.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <tuple>
#include <type_traits>

#include "kernels/message_exchange.hpp"
#include "module.hpp"
#include "mscclpp/basic/element.hpp"
#include "owned_call.hpp"

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
                      DataType type, ReduceOp op, int root, std::uintptr_t stream, std::string algorithm,
                      int destination, int origin, std::size_t receivedCount) {
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

// Writes a number as an element. An integer type takes what it can represent.
void encode(DataType type, double value, std::byte* element) {
  const auto encodeAs = [&](auto tag) {
    using T = typename decltype(tag)::Type;
    T encoded{};
    if constexpr (std::is_integral_v<T>) {
      // The largest value may not be a double; the next one, a power of two, is.
      const bool fits = value >= static_cast<double>(std::numeric_limits<T>::min()) &&
                        value < std::ldexp(1.0, std::numeric_limits<T>::digits) && value == std::floor(value);
      if (!fits) {
        throw Error("the factor " + std::to_string(value) + " is no " + nameOf(type) +
                        ": use an integer in its range, or convert the tensor",
                    ErrorCode::InvalidUsage);
      }
      encoded = static_cast<T>(value);
    } else {
      encoded = narrow<T>(static_cast<Accumulator<T>>(value));
    }
    std::memcpy(element, &encoded, sizeof(T));
  };
  visit(type, encodeAs, [] {});
}

// A function of an object and of toCall()'s arguments.
template <class... Arguments>
auto runnerOf(CollectiveCall (*)(Arguments...)) {
  return [](Collectives& self, Arguments... arguments) { self.run(toCall(std::move(arguments)...)); };
}

void initCall(OwnedCall* self, CollectiveType collective, std::uintptr_t input, std::uintptr_t output,
              std::size_t count, DataType type, ReduceOp op, int root, std::uintptr_t stream, std::string algorithm,
              int destination, int origin, std::size_t receivedCount, std::vector<std::size_t> counts,
              std::vector<std::size_t> offsets, std::optional<double> factor, std::uintptr_t factorAddress) {
  std::array<std::byte, 8> element{};
  if (factor) encode(type, *factor, element.data());
  new (self) OwnedCall;
  self->call = toCall(collective, input, output, count, type, op, root, stream, std::move(algorithm), destination,
                      origin, receivedCount);
  self->counts = std::move(counts);
  self->offsets = std::move(offsets);
  self->call.counts = self->counts;
  self->call.offsets = self->offsets;
  self->factor = element;
  if (factor) {
    self->call.reduction = Reduction(op, self->factor.data(), ScalarLocation::Host);
  } else if (factorAddress != 0) {
    self->call.reduction = Reduction(op, toPointer(factorAddress), ScalarLocation::Device);
  }
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
      .value("send_receive", CollectiveType::SendReceive)
      .value("reduce_scatter_v", CollectiveType::ReduceScatterV);
  nb::class_<OwnedCall>(
      module, "CollectiveCall",
      "A call of a collective. input, output, stream: addresses; 0 where the rank has none. count: elements of the "
      "message; of a rank's contribution (all_gather, gather), of a rank's result (reduce_scatter, scatter), or of the "
      "part from one rank for another (all_to_all). destination, origin, received_count: of a send_receive. algorithm: "
      "one of Collectives.algorithms(), or empty to select it by size. counts, offsets: of a reduce_scatter_v, in "
      "elements, one of each for each rank. factor: multiplies what this rank contributes to a reduction; "
      "factor_address: the same as one element in memory, which the kernel reads.")
      .def("__init__", &initCall, "collective"_a, nb::kw_only(), "input"_a = 0, "output"_a = 0, "count"_a = 0,
           "dtype"_a = DataType::FLOAT32, "op"_a = ReduceOp::SUM, "root"_a = 0, "stream"_a = 0, "algorithm"_a = "",
           "destination"_a = -1, "origin"_a = -1, "received_count"_a = 0, "counts"_a = std::vector<std::size_t>{},
           "offsets"_a = std::vector<std::size_t>{}, "factor"_a = nb::none(), "factor_address"_a = 0);
}

using Message = std::tuple<std::uintptr_t, std::size_t, int>;

// Also where there are more messages than a call of Collectives::exchange takes.
void exchangeMessages(Collectives& self, const std::vector<Message>& sends, const std::vector<Message>& receives,
                      std::uintptr_t stream) {
  std::vector<SentMessage> sent;
  std::vector<ReceivedMessage> received;
  for (const auto& [address, bytes, peer] : sends) sent.push_back({toPointer(address), bytes, peer});
  for (const auto& [address, bytes, peer] : receives) received.push_back({toPointer(address), bytes, peer});
  kernels::exchange(self, sent, received, toStream(stream));
}

void bindRun(nb::class_<Collectives>& collectives) {
  collectives
      .def("run", runnerOf(&toCall), "collective"_a, "input"_a, "output"_a, "count"_a, "dtype"_a,
           "op"_a = ReduceOp::SUM, "root"_a = 0, "stream"_a = 0, "algorithm"_a = "", "destination"_a = -1,
           "origin"_a = -1, "received_count"_a = 0, Unlocked(),
           "Performs a call. Called by all ranks, in the same order as their other collectives; a send_receive by the "
           "two ranks concerned. Raises InvalidUsage for wrong arguments and, after a failure, what check() raises.")
      .def(
          "run", [](Collectives& self, const OwnedCall& call) { self.run(call.call); }, "call"_a, Unlocked())
      .def(
          "run",
          [](Collectives& self, const std::vector<const OwnedCall*>& owned) {
            std::vector<CollectiveCall> calls;
            for (const OwnedCall* each : owned) calls.push_back(each->call);
            self.run(calls);
          },
          "calls"_a, Unlocked(),
          "Performs calls on one stream, none of which uses what another one writes; the same on all ranks. Short "
          "moves of data that follow one another become one kernel.")
      .def("exchange", &exchangeMessages, "sends"_a, "receives"_a, "stream"_a = 0, Unlocked(),
           "Sends and receives messages, which progress together: (address, bytes, peer). Called by each rank that has "
           "part in one. The k-th message from one rank to another is the k-th that this one "
           "receives from it, over all calls, with the same size.");
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
  bindRun(collectives);
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
      .def("check", &Collectives::check, Unlocked(),
           "Raises RemoteError, Timeout or Aborted if a wait of an earlier call failed; on GPUs synchronise the stream "
           "before.")
      .def(
          "make_trace", [](const Collectives& self) { return self.makeTrace(); }, Unlocked(),
          "A Trace for record(), of this rank, its device and its clock.")
      .def("record", &Collectives::record, "trace"_a.none(), Unlocked(),
           "Records all later calls into a Trace, until record(None).")
      .def("is_concurrent", &Collectives::isConcurrent)
      .def("memory_bytes", &Collectives::memoryBytes)
      .def("algorithms", &Collectives::algorithms, "collective"_a = CollectiveType::AllReduce,
           "The names of the algorithms that were set up.")
      .def(
          "selected_algorithm",
          [](const Collectives& self, const OwnedCall& call) { return self.selectedAlgorithm(call.call); }, "call"_a)
      .def(
          "supports", [](const Collectives& self, const OwnedCall& call) { return self.supports(call.call); },
          "call"_a);
}

}  // namespace mscclpp::python
