// What the files of the bindings of plans share.
#pragma once

#include "module.hpp"
#include "mscclpp/plan/plan.hpp"

namespace mscclpp::python {

/// Adds to the class of plans what a model of their execution says.
void bindSimulation(nb::module_& module, nb::class_<plan::NamedPlan>& plan);

}  // namespace mscclpp::python
