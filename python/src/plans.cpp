// Plans as values: their formats, their proof, and plans made from plans. Programs: plan_language.cpp.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "module.hpp"
#include "mscclpp/kernels/plan/json.hpp"
#include "mscclpp/kernels/plan/text.hpp"
#include "mscclpp/kernels/plan/verify.hpp"
#include "mscclpp/kernels/plan/xml.hpp"
#include "mscclpp/plan/plan.hpp"
#include "plan_classes.hpp"

namespace mscclpp::python {

namespace {

using plan::NamedPlan;

int blocksOf(const NamedPlan& self, int rank) {
  if (rank < 0 || rank >= plan::countOf(self.rankPlans)) {
    throw Error("the plan has no rank " + std::to_string(rank), ErrorCode::InvalidUsage);
  }
  return self.rankPlans[rank].blocks.count;
}

}  // namespace

void bindPlans(nb::module_& module) {
  nb::class_<NamedPlan> plan(module, "Plan", "What the blocks of all ranks do; docs/plans.md.");
  plan.def_static("from_json", &plan::fromJson, "text"_a, Unlocked(),
                  "Reads a plan in MSCCL++'s schema. Raises InvalidUsage with rank, block, operation and key for other "
                  "text. It is not proven: verified().")
      .def_static("from_xml", &plan::fromXml, "text"_a, Unlocked(), "The same in the XML of MSCCL's runtime.")
      .def_static("from_text", &plan::fromText, "text"_a, Unlocked(), "The same of to_text().")
      .def_ro("name", &NamedPlan::name)
      .def_ro("ranks", &NamedPlan::ranks)
      .def_ro("in_place", &NamedPlan::inPlace)
      .def_prop_ro(
          "message_range", [](const NamedPlan& self) { return std::pair(self.minBytes, self.maxBytes); },
          "The messages that it is meant for, in bytes.")
      .def("blocks", &blocksOf, "rank"_a, "The number of thread blocks of a rank.")
      .def("to_json", &plan::toJson, Unlocked(), "The plan in MSCCL++'s schema.")
      .def("to_xml", &plan::toXml, Unlocked(),
           "A plan that is right, verified(), for MSCCL's runtime. Raises InvalidUsage for switch channels and groups "
           "of thread blocks, which that has not.")
      .def("to_text", &plan::toText, Unlocked(), "The plan for reading: one line for each operation.")
      .def("verified", &plan::verified, Unlocked(),
           "The same plan, proven to be right. Raises InvalidUsage with rank, block, operation and line if it is not.");
  bindSimulation(module, plan);
}

}  // namespace mscclpp::python
