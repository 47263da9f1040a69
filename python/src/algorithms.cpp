// Algorithms as objects, their collections and selectors, in MSCCL++'s interface.
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unordered_map.h>
#include <nanobind/stl/vector.h>
#include <nanobind/trampoline.h>

#include <optional>
#include <unordered_map>

#include "module.hpp"
#include "mscclpp/algorithm.hpp"
#include "mscclpp/kernels/executor.hpp"

namespace mscclpp::python {

namespace {

using collective::AlgorithmCollectionBuilder;

std::shared_ptr<Algorithm> fromHandle(const void* pointer) {
  if (pointer == nullptr) throw Error("a native algorithm is not null", ErrorCode::InvalidUsage);
  return *static_cast<const std::shared_ptr<Algorithm>*>(pointer);
}

std::shared_ptr<Algorithm> fromCapsule(const nb::capsule& capsule) {
  const char* name = capsule.name();
  if (name == nullptr || std::string(name) != ALGORITHM_NATIVE_CAPSULE_NAME) {
    throw Error(std::string("the capsule's name is ") + (name != nullptr ? name : "empty") + ", not " +
                    ALGORITHM_NATIVE_CAPSULE_NAME + ": return a capsule of a std::shared_ptr<mscclpp::Algorithm>",
                ErrorCode::InvalidUsage);
  }
  return fromHandle(capsule.data());
}

CommResult execute(Algorithm& self, std::shared_ptr<Communicator> communicator, std::uintptr_t input,
                   std::uintptr_t output, std::size_t inputSize, std::size_t outputSize, DataType type, ReduceOp op,
                   std::uintptr_t stream, std::shared_ptr<Executor> executor, int blocks, int threads,
                   bool symmetricMemory, std::optional<std::unordered_map<std::string, std::uintptr_t>> extras,
                   std::optional<DataType> accumulatedType) {
  return unlocked([&] {
    return self.execute(std::move(communicator), toPointer(input), toPointer(output), inputSize, outputSize, type, op,
                        static_cast<CUstream_st*>(toPointer(stream)), std::move(executor), blocks, threads,
                        symmetricMemory, extras.value_or(std::unordered_map<std::string, std::uintptr_t>{}),
                        accumulatedType.value_or(DataType::AUTO));
  });
}

struct PythonAlgorithmBuilder : AlgorithmBuilder {
  NB_TRAMPOLINE(AlgorithmBuilder, 1);
  std::shared_ptr<Algorithm> build() override { NB_OVERRIDE_PURE(build); }
};

// A Python selector may return None, which the caster of a function's result does not take for a null pointer.
AlgoSelectFunc toSelector(std::function<nb::object(const AlgorithmMap&, const CollectiveRequest&)> selector) {
  if (!selector) return nullptr;
  return [selector = std::move(selector)](const AlgorithmMap& algorithms, const CollectiveRequest& request) {
    const nb::gil_scoped_acquire acquire;
    const nb::object selected = selector(algorithms, request);
    return selected.is_none() ? nullptr : nb::cast<std::shared_ptr<Algorithm>>(selected);
  };
}

void bindEnumerations(nb::module_& module) {
  nb::enum_<CollectiveBufferMode>(module, "CollectiveBufferMode", "Which placement of the output is supported.")
      .value("Any", CollectiveBufferMode::Any)
      .value("InPlace", CollectiveBufferMode::InPlace)
      .value("OutOfPlace", CollectiveBufferMode::OutOfPlace);
  nb::enum_<AlgorithmType>(module, "AlgorithmType", "How an algorithm is written.")
      .value("Native", AlgorithmType::Native)
      .value("DSL", AlgorithmType::DSL);
  nb::enum_<CommResult>(module, "CommResult", "The result of Algorithm.execute(), with NCCL's values.")
      .value("CommSuccess", CommResult::CommSuccess)
      .value("CommUnhandledCudaError", CommResult::CommUnhandledCudaError)
      .value("CommSystemError", CommResult::CommSystemError)
      .value("CommInternalError", CommResult::CommInternalError)
      .value("CommInvalidArgument", CommResult::CommInvalidArgument)
      .value("CommInvalidUsage", CommResult::CommInvalidUsage)
      .value("CommRemoteError", CommResult::CommRemoteError)
      .value("CommInProgress", CommResult::CommInProgress);
}

void bindAlgorithm(nb::module_& module) {
  auto algorithm = nb::class_<Algorithm>(module, "Algorithm", "A collective algorithm; docs/algorithms.md.");
  nb::class_<Algorithm::Constraint>(algorithm, "Constraint", "What an algorithm is made for; 0 stands for any number.")
      .def(nb::init<int, int>(), "world_size"_a = 0, "n_ranks_per_node"_a = 0)
      .def_rw("world_size", &Algorithm::Constraint::worldSize)
      .def_rw("n_ranks_per_node", &Algorithm::Constraint::nRanksPerNode);
  algorithm
      .def_static(
          "create_from_native_handle", [](std::uintptr_t handle) { return fromHandle(toPointer(handle)); }, "handle"_a,
          "The algorithm of a std::shared_ptr<mscclpp::Algorithm> at an address.")
      .def_static("create_from_native_capsule", &fromCapsule, "capsule"_a,
                  "The same from a capsule with the name \"mscclpp::AlgorithmPtr\". Raises InvalidUsage for others.")
      .def_prop_ro("name", [](const Algorithm& self) { return self.name(); })
      .def_prop_ro("collective", [](const Algorithm& self) { return self.collective(); })
      .def_prop_ro(
          "message_range", [](const Algorithm& self) { return self.messageRange(); },
          "The shortest and the longest message, in bytes.")
      .def_prop_ro("tags", [](const Algorithm& self) { return self.tags(); })
      .def_prop_ro("buffer_mode", [](const Algorithm& self) { return self.bufferMode(); })
      .def_prop_ro("constraint", &Algorithm::constraint)
      .def_prop_ro("type", &Algorithm::type)
      .def("set_message_size_range", &Algorithm::setMessageSizeRange, "min_message_size"_a, "max_message_size"_a)
      .def("execute", &execute, "comm"_a, "input_buffer"_a, "output_buffer"_a, "input_size"_a, "output_size"_a,
           "dtype"_a, "op"_a = ReduceOp::NOP, "stream"_a = 0, "executor"_a.none() = nb::none(), "nblocks"_a = 0,
           "nthreads_per_block"_a = 0, "symmetric_memory"_a = false, "extras"_a = nb::none(),
           "accum_dtype"_a = nb::none(),
           "Performs the collective: on GPUs enqueues it on `stream`, on CPU ranks returns when it is done. Called by "
           "all ranks in the same order. Buffers are addresses, sizes are bytes. Returns a CommResult; any but "
           "CommSuccess is logged with a sentence. executor: of an execution plan (AlgorithmType.DSL).")
      .def("reset", &Algorithm::reset, Unlocked(), "Releases what execute() keeps between calls.");
}

void bindCollection(nb::module_& module) {
  nb::class_<CollectiveRequest>(module, "CollectiveRequest", "The call that an algorithm is selected for.")
      .def(nb::init<>())
      .def_rw("world_size", &CollectiveRequest::worldSize)
      .def_rw("n_ranks_per_node", &CollectiveRequest::nRanksPerNode)
      .def_rw("rank", &CollectiveRequest::rank)
      .def_prop_rw(
          "input_buffer", [](const CollectiveRequest& self) { return toAddress(self.input); },
          [](CollectiveRequest& self, std::uintptr_t address) { self.input = toPointer(address); })
      .def_prop_rw(
          "output_buffer", [](const CollectiveRequest& self) { return toAddress(self.output); },
          [](CollectiveRequest& self, std::uintptr_t address) { self.output = toPointer(address); })
      .def_rw("message_size", &CollectiveRequest::messageSize, "In bytes.")
      .def_prop_rw(
          "stream", [](const CollectiveRequest& self) { return toAddress(self.stream); },
          [](CollectiveRequest& self, std::uintptr_t stream) {
            self.stream = static_cast<CUstream_st*>(toPointer(stream));
          })
      .def_rw("collective", &CollectiveRequest::collective)
      .def_rw("dtype", &CollectiveRequest::dtype)
      .def_rw("op", &CollectiveRequest::op)
      .def_rw("hints", &CollectiveRequest::hints)
      .def("buffer_mode", &CollectiveRequest::bufferMode);
  nb::class_<AlgorithmCollection>(module, "AlgorithmCollection",
                                  "Algorithms by collective and name; iterating gives all of them.")
      .def(nb::init<>())
      .def("select_algorithm", &AlgorithmCollection::selectAlgorithm, "request"_a,
           "What the selectors return for a request; None if neither returns one.")
      .def("register_algorithm", &AlgorithmCollection::registerAlgorithm, "collective"_a, "algorithm_name"_a,
           "algorithm"_a, "Adds an algorithm, in place of one with the same collective and name.")
      .def("get_algorithms_by_collective", &AlgorithmCollection::getAlgorithmsByCollective, "collective"_a)
      .def("get_all_algorithms", &AlgorithmCollection::getAllAlgorithms)
      .def("extend", &AlgorithmCollection::extend, "other"_a)
      .def(
          "set_selectors",
          [](AlgorithmCollection& self,
             std::function<nb::object(const AlgorithmMap&, const CollectiveRequest&)> primary,
             std::function<nb::object(const AlgorithmMap&, const CollectiveRequest&)> fallback) {
            self.setSelectors(toSelector(std::move(primary)), toSelector(std::move(fallback)));
          },
          "primary"_a.none(), "fallback"_a.none() = nb::none(),
          "Functions of (algorithms by collective and name, request) that return an algorithm or None.")
      .def("__len__", [](const AlgorithmCollection& self) { return self.getAllAlgorithms().size(); })
      .def(
          "__iter__", [](const AlgorithmCollection& self) { return nb::iter(nb::cast(self.getAllAlgorithms())); },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[Algorithm]"))
      .def("__getitem__", &AlgorithmCollection::getAlgorithmsByCollective, "collective"_a);
}

}  // namespace

void bindAlgorithms(nb::module_& module) {
  bindEnumerations(module);
  bindAlgorithm(module);
  bindCollection(module);
  nb::class_<AlgorithmBuilder, PythonAlgorithmBuilder>(module, "AlgorithmBuilder",
                                                       "Makes an algorithm: derive from it and write build().")
      .def(nb::init<>())
      .def("build", &AlgorithmBuilder::build);
  using Selector = std::function<nb::object(const AlgorithmMap&, const CollectiveRequest&)>;
  nb::class_<AlgorithmCollectionBuilder>(module, "AlgorithmCollectionBuilder",
                                         "Builds collections; one object serves a process, whoever creates it.")
      .def(nb::new_(&AlgorithmCollectionBuilder::getInstance))
      .def_static("reset", &AlgorithmCollectionBuilder::reset, "Forgets builders and selectors.")
      .def("add_algorithm_builder", &AlgorithmCollectionBuilder::addAlgorithmBuilder, "builder"_a)
      .def(
          "set_algorithm_selector",
          [](AlgorithmCollectionBuilder& self, Selector selector) {
            self.setAlgorithmSelector(toSelector(std::move(selector)));
          },
          "selector"_a, "A function of (algorithms by collective and name, request) that returns one or None.")
      .def(
          "set_fallback_algorithm_selector",
          [](AlgorithmCollectionBuilder& self, Selector selector) {
            self.setFallbackAlgorithmSelector(toSelector(std::move(selector)));
          },
          "selector"_a)
      .def("build", &AlgorithmCollectionBuilder::build)
      .def(
          "build_default_algorithms",
          [](AlgorithmCollectionBuilder& self, std::uintptr_t, std::size_t, std::uintptr_t, std::size_t, int,
             DeviceType deviceType) { return self.buildDefaultAlgorithms(deviceType); },
          "scratch_buffer"_a = 0, "scratch_buffer_size"_a = 0, "flag_buffer"_a = 0, "flag_buffer_size"_a = 0,
          "rank"_a = 0, "device_type"_a = DeviceType::GPU, Unlocked(),
          "A collection of the library's algorithms. Of the arguments only device_type is used: the algorithms "
          "allocate "
          "what they need. Raises InvalidUsage for GPUs in a build without CUDA.");
}

}  // namespace mscclpp::python
