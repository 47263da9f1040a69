// What the tuner is made of: a timer of calls, and the table of the fastest algorithms.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "gpu_support.hpp"
#include "kernels/backend.hpp"
#include "kernels/timed_calls.hpp"
#include "kernels/tuning_table.hpp"
#include "module.hpp"
#include "owned_call.hpp"

namespace mscclpp::python {

namespace {

using kernels::TuningTable;

class CallTimer {
 public:
  CallTimer(std::shared_ptr<Bootstrap> bootstrap, std::shared_ptr<Collectives> collectives, DeviceType deviceType,
            const OwnedCall& owned, int warmup, int calls)
      : bootstrap_(std::move(bootstrap)), collectives_(std::move(collectives)) {
    const kernels::Call call = [collectives = collectives_, call = owned.call](CUstream_st* stream) mutable {
      call.stream = stream;
      collectives->run(call);
    };
    const kernels::TimingOptions timing{.warmup = warmup, .calls = calls};
    if (deviceType == DeviceType::GPU) {
      stream_ = makeStream();
      timed_ = kernels::gpuTimedCall(stream_.get(), call, timing);
    } else {
      timed_ = kernels::cpuTimedCall(call, timing);
    }
  }

  double measure() {
    const double microseconds = timed_->measure([&] { bootstrap_->barrier(); }).front();
    collectives_->check();
    return microseconds;
  }

 private:
  std::shared_ptr<Bootstrap> bootstrap_;
  std::shared_ptr<Collectives> collectives_;
  std::shared_ptr<CUstream_st> stream_;  // null on CPUs; outlives the graphs
  std::unique_ptr<kernels::TimedCall> timed_;
};

}  // namespace

void bindTuning(nb::module_& module) {
  nb::class_<CallTimer>(module, "CallTimer",
                        "Times a call without counts for each rank and without factor, as mscclpp-perf does: `calls` "
                        "calls after one another, on a GPU in a graph. All ranks make it and call it together.")
      .def(nb::new_([](std::shared_ptr<Bootstrap> bootstrap, std::shared_ptr<Collectives> collectives,
                       DeviceType deviceType, const OwnedCall& call, int warmup, int calls) {
             return makeShared<CallTimer>(std::move(bootstrap), std::move(collectives), deviceType, call, warmup,
                                          calls);
           }),
           "bootstrap"_a, "collectives"_a, "device_type"_a, "call"_a, "warmup"_a = 20, "calls"_a = 50, Unlocked())
      .def("measure", &CallTimer::measure, Unlocked(), "Microseconds of a call on this rank.");
  nb::class_<TuningTable>(module, "TuningTable", "The fastest algorithm of a collective for each size.")
      .def(nb::init<>())
      .def("add", &TuningTable::add, "bytes"_a, "algorithm"_a, "needs_registration"_a, "is_unlimited"_a,
           "microseconds"_a,
           "A measurement; bytes: of CollectiveCall's count elements. is_unlimited: the algorithm takes any size.")
      .def(
          "choices",
          [](const TuningTable& self) {
            std::vector<std::pair<std::size_t, std::string>> choices;
            for (const auto& [maxBytes, algorithm] : self.choices()) choices.emplace_back(maxBytes, algorithm);
            return choices;
          },
          "(largest size, algorithm) by growing size; 0: any size.")
      .def_static("require_usable", &TuningTable::requireUsable, "path"_a,
                  "Raises InvalidUsage if there is a file, and it is not one that choices can be put into.")
      .def("write_to", &TuningTable::writeTo, "path"_a, "device_name"_a, "ranks"_a, "collective"_a,
           "Puts the choices into a file, in place of those for the same device, ranks and collective.");
  module.def(
      "device_name",
      [](DeviceType type) {
        return (type == DeviceType::GPU ? kernels::gpuBackend() : kernels::cpuBackend()).deviceName();
      },
      "device_type"_a, "The name of the current GPU; empty for the CPU.");
}

}  // namespace mscclpp::python
