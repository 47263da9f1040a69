// The library of plans, which mscclpp.plans has for users, and the simulator of plans.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "module.hpp"
#include "mscclpp/kernels/plan/library.hpp"
#include "mscclpp/kernels/plan/simulate.hpp"
#include "mscclpp/kernels/plan/svg.hpp"
#include "mscclpp/kernels/plan/verify.hpp"
#include "plan_classes.hpp"

namespace mscclpp::python {

namespace {

using TopologyDict = std::optional<nb::typed<nb::dict, nb::str, nb::object>>;

plan::Topology toTopology(const TopologyDict& topology) {
  if (!topology) return {};
  try {
    const nb::object text = nb::module_::import_("json").attr("dumps")(*topology, "allow_nan"_a = false);
    return plan::topologyFromJson(nb::cast<std::string>(text));
  } catch (const nb::python_error& error) {  // numbers that are not finite, objects that are none of JSON's
    throw Error(std::string("topology: ") + nb::str(error.value()).c_str(), ErrorCode::InvalidUsage);
  }
}

}  // namespace

void bindPlanLibrary(nb::module_& module) {
  using plan::LibraryPlan;
  nb::class_<LibraryPlan>(module, "LibraryPlan", "A plan of the library, which plans.make() makes for any ranks.")
      .def_prop_ro("name", [](const LibraryPlan& self) { return self.name; })
      .def_prop_ro("description", [](const LibraryPlan& self) { return self.description; })
      .def_ro("collective", &LibraryPlan::collective)
      .def(
          "refuses",
          [](const LibraryPlan& self, int ranks, int ranksPerNode, bool inPlace) {
            return self.refuses({.ranks = ranks, .ranksPerNode = ranksPerNode, .inPlace = inPlace});
          },
          "ranks"_a, nb::kw_only(), "ranks_per_node"_a = 0, "in_place"_a = false,
          "Why make() cannot make it with these arguments; empty: it can.");
  module.def("library_plans", &plan::libraryPlans, nb::rv_policy::copy, "The plans of the library.");
  module.def(
      "make_library_plan",
      [](const std::string& name, int ranks, int ranksPerNode, int instances, msccl::Protocol protocol, bool inPlace) {
        return plan::verified(plan::makeLibraryPlan(name, {ranks, ranksPerNode, instances, protocol, inPlace}));
      },
      "name"_a, "ranks"_a, "ranks_per_node"_a, "instances"_a, "protocol"_a, "in_place"_a, Unlocked(),
      "A plan of the library, proven to be right. Raises InvalidUsage if it cannot be made.");
}

void bindSimulation(nb::module_& module, nb::class_<plan::NamedPlan>& plan) {
  using plan::Simulated;
  using plan::SimulatedOperation;
  nb::class_<SimulatedOperation>(module, "SimulatedOperation", "An operation of a plan as it was carried out.")
      .def_ro("rank", &SimulatedOperation::rank)
      .def_ro("block", &SimulatedOperation::block)
      .def_ro("operation", &SimulatedOperation::operation, "Its number in the block.")
      .def_ro("begin", &SimulatedOperation::begin, "In seconds; waiting included.")
      .def_ro("end", &SimulatedOperation::end)
      .def_ro("cause", &SimulatedOperation::cause,
              "What it waited for longest: an index into Simulated.operations, or -1.");
  nb::class_<Simulated>(module, "Simulated", "A call of a plan in the model of Plan.simulate().")
      .def_ro("seconds", &Simulated::seconds)
      .def_ro("operations", &Simulated::operations);
  plan.def(
          "simulate",
          [](const plan::NamedPlan& self, std::int64_t nbytes, const TopologyDict& topology) {
            return unlocked([&self, bytes = toSize(nbytes, "nbytes"), model = toTopology(topology)] {
              return plan::simulate(self, bytes, model);
            });
          },
          "nbytes"_a, "topology"_a = nb::none(),
          "Predicts the time of one call on a message of nbytes, by an alpha-beta model of the links. topology: what "
          "differs from its defaults, such as {'memory': {'us': 0.8, 'GBps': 400}}; docs/plans.md. Raises InvalidUsage "
          "for a plan that has faults of structure or waits for ever.")
      .def(
          "to_svg",
          [](const plan::NamedPlan& self, std::int64_t nbytes, const TopologyDict& topology) {
            return unlocked([&self, bytes = toSize(nbytes, "nbytes"), model = toTopology(topology)] {
              return plan::toSvg(self, plan::simulate(self, bytes, model));
            });
          },
          "nbytes"_a = std::int64_t{1} << 20, "topology"_a = nb::none(),
          "A picture of such a call: a row for each block, and arrows from each signal to what waited for it.");
}

}  // namespace mscclpp::python
