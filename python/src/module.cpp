#include "module.hpp"

NB_MODULE(_mscclpp, module) {
  using namespace mscclpp::python;
  module.doc() = "The compiled part of mscclpp; the package has the names that users import.";
  // Programs end with live objects at module level; that is no error of theirs.
  nb::set_leak_warnings(false);
  bindErrors(module);
  bindTypes(module);
  bindEnvironment(module);
  bindBootstrap(module);
  bindTransport(module);
  bindCommunicator(module);
  bindMemory(module);
  bindTrace(module);
  bindCollectives(module);
  bindFusedGemms(module);
  bindTuning(module);
  bindAlgorithms(module);
  bindNamedGroups(module);
  bindChannels(module);
  bindProxy(module);
  bindSwitchChannels(module);
  bindMoe(module);
  bindJit(module);
  bindPlans(module);
  bindPlanLanguage(module);
  bindPlanChunks(module);
  bindPlanLibrary(module);
  bindExecutor(module);
}
