// Execution of plans, in MSCCL++'s interface.
#include "mscclpp/kernels/executor.hpp"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unordered_map.h>

#include <filesystem>

#include "module.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/kernels/dsl_algorithm.hpp"

namespace mscclpp::python {

void bindExecutor(nb::module_& module) {
  nb::enum_<PacketType>(module, "PacketType", "The packets that a plan moves data in.")
      .value("LL8", PacketType::LL8)
      .value("LL16", PacketType::LL16);
  nb::enum_<PlanCode>(module, "PlanCode", "How GPUs execute plans; CPU ranks interpret them.")
      .value("Specialised", PlanCode::Specialised, "Code that NVRTC compiles for the plan.")
      .value("Interpreted", PlanCode::Interpreted, "A kernel that reads the operations from memory.");
  nb::class_<ExecutionPlan>(
      module, "ExecutionPlan",
      "A plan as a rank executes it: of a file (MSCCL++'s JSON, MSCCL's XML or text), or of a Plan. It is proven: "
      "InvalidUsage says with rank, block and operation why another one is wrong.")
      .def(
          "__init__",
          [](ExecutionPlan* self, const std::filesystem::path& path, int rank) {
            new (self) ExecutionPlan(path.string(), rank);
          },
          "path"_a, "rank"_a, Unlocked())
      .def(nb::init<plan::NamedPlan, int>(), "plan"_a, "rank"_a, Unlocked())
      .def_prop_ro("name", &ExecutionPlan::name)
      .def_prop_ro("collective", &ExecutionPlan::collective)
      .def_prop_ro("rank", &ExecutionPlan::rank)
      .def_prop_ro("min_message_size", &ExecutionPlan::minMessageSize, "In bytes.")
      .def_prop_ro("max_message_size", &ExecutionPlan::maxMessageSize, "In bytes.")
      .def_prop_ro("is_in_place", &ExecutionPlan::isInPlace);
  nb::class_<ExecutorMemory>(module, "ExecutorMemory", "What an executor keeps of its calls, on this rank.")
      .def_ro("contexts", &ExecutorMemory::contexts, "Scratch, counters and channels of a plan.")
      .def_ro("scratch_bytes", &ExecutorMemory::scratchBytes, "Of all contexts.")
      .def_ro("staging_bytes", &ExecutorMemory::stagingBytes,
              "Memory through which messages are copied whose buffers peers cannot map.")
      .def_ro("buffers", &ExecutorMemory::buffers, "Pairs of an input and an output that other ranks reach.");
  nb::class_<Executor>(module, "Executor",
                       "Executes plans on the ranks of a communicator: on the streams of the current GPU, or on CPU "
                       "ranks, where execute() returns when the collective is done.")
      .def(nb::new_(
               [](std::shared_ptr<Communicator> communicator, std::size_t scratchBytes, DeviceType where,
                  PlanCode code) { return makeShared<Executor>(std::move(communicator), scratchBytes, where, code); }),
           "communicator"_a, "default_scratch_buffer_size"_a = Executor::DefaultScratchBufferSize,
           "device_type"_a = DeviceType::GPU, "plan_code"_a = PlanCode::Specialised)
      .def(
          "is_specialised", &Executor::isSpecialised, "plan"_a,
          "Whether calls of the plan have made code of it; if not, it is interpreted: as plan_code says, on CPU ranks, "
          "before the first call, in a capture, where NVRTC is missing, or because the code would be too long.")
      .def(
          "execute",
          [](Executor& self, int rank, std::uintptr_t sendBuffer, std::uintptr_t receiveBuffer, std::int64_t sendSize,
             std::int64_t receiveSize, DataType type, const ExecutionPlan& plan, std::uintptr_t stream,
             PacketType packets, ReduceOp op) {
            self.execute(rank, toPointer(sendBuffer), toPointer(receiveBuffer), toSize(sendSize, "send_buff_size"),
                         toSize(receiveSize, "recv_buff_size"), type, plan,
                         static_cast<CUstream_st*>(toPointer(stream)), packets, op);
          },
          "rank"_a, "send_buff"_a, "recv_buff"_a, "send_buff_size"_a, "recv_buff_size"_a, "data_type"_a, "plan"_a,
          "stream"_a = 0, "packet_type"_a = PacketType::LL16, "op"_a = ReduceOp::SUM, Unlocked(),
          "Performs a plan; on GPUs enqueues it. Buffers are addresses, sizes are bytes. All ranks make the same calls "
          "in the same order. Raises InvalidUsage for what does not fit the plan.")
      .def("memory", &Executor::memory, "What is kept now, until reset().")
      .def("check", &Executor::check, Unlocked(), "Raises what a wait of an earlier call has failed with.")
      .def("reset", &Executor::reset, Unlocked(),
           "Releases what execute() keeps between calls, on all ranks, when the kernels of all calls have ended.");
  module.def(
      "make_dsl_algorithm",
      [](std::string name, const ExecutionPlan& plan, std::unordered_map<std::string, std::uint64_t> tags,
         const Algorithm::Constraint& constraint, DeviceType where) -> std::shared_ptr<Algorithm> {
        return makeShared<DslAlgorithm>(std::move(name), plan, std::move(tags), constraint, where);
      },
      "name"_a, "plan"_a, "tags"_a, "constraint"_a, "device_type"_a, "A plan as an algorithm.");
}

}  // namespace mscclpp::python
