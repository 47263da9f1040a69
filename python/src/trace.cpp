// Traces of calls and of spans that Python code names.
#include "mscclpp/host/trace/trace.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <optional>

#include "gpu_support.hpp"
#include "module.hpp"

namespace mscclpp::python {

namespace {

TraceId toId(int event) {
  constexpr int most = static_cast<int>(TraceId::End) - static_cast<int>(TraceId::FirstUser);
  if (event < 0 || event >= most) {
    throw Error("a trace has " + std::to_string(most) + " events of the user, 0 to " + std::to_string(most - 1) +
                    ", not " + std::to_string(event) + ": use fewer names",
                ErrorCode::InvalidUsage);
  }
  return userTraceId(event);
}

}  // namespace

void bindTrace(nb::module_& module) {
  nb::class_<TraceTrack>(module, "TraceTrack", "The events of one thread; one thread records.")
      .def(
          "begin",
          [](TraceTrack& self, int event, std::optional<std::uint64_t> value) {
            self.begin(toId(event), value.value_or(noTraceArgument));
          },
          "event"_a, "value"_a = nb::none(), "Begins a span of a user's event, with a number of up to 48 bits.")
      .def(
          "end", [](TraceTrack& self, int event) { self.end(toId(event)); }, "event"_a,
          "Ends the innermost span, which is one of this event.");
  nb::class_<Trace>(module, "Trace", "The events of one rank; Collectives.make_trace() makes it. docs/tracing.md.")
      .def("track_of_this_thread", &Trace::trackOfThisThread, "name"_a,
           "The track of that name for the calling thread, created at the first call.")
      .def(
          "name", [](Trace& self, int event, std::string name) { self.name(toId(event), std::move(name)); }, "event"_a,
          "name"_a, "How a user's event is displayed.")
      .def("collect", &Trace::collect, Unlocked(),
           "Takes out what blocks have recorded, so that there is space for more; no recording call is in progress.")
      .def("lost", &Trace::lost, "Number of events dropped because a buffer was full.");
  module.def(
      "write_trace",
      [](const std::string& path, Trace& trace, Bootstrap& bootstrap) { writeTrace(path, trace, bootstrap); }, "path"_a,
      "trace"_a, "bootstrap"_a, Unlocked(),
      "Called by all ranks, of one host: rank 0 writes the traces of all into a file, for Perfetto.");
  module.def("synchronize_device", &synchronizeDevice, Unlocked(),
             "Waits for all work on the current GPU; without CUDA there is none.");
}

}  // namespace mscclpp::python
