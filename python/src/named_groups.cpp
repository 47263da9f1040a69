#include "named_groups.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <map>
#include <shared_mutex>

#include "module.hpp"

namespace mscclpp::python {

namespace {

struct Registry {
  std::shared_mutex mutex;
  std::map<std::string, std::shared_ptr<NamedGroup>, std::less<>> groups;
};

// Never destroyed: what is left in it when the process ends has Python objects.
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

// Python calls that end with the last copy of the function, on any thread.
template <class T>
typename OfDevices<T>::Make toMake(nb::callable function) {
  auto* const held = new nb::callable(std::move(function));
  const std::shared_ptr<nb::callable> shared(held, [](nb::callable* object) {
    if (!nb::is_alive()) return;  // the interpreter has ended, and its objects with it
    const nb::gil_scoped_acquire acquire;
    delete object;
  });
  return [shared](DeviceType type) {
    const nb::gil_scoped_acquire acquire;
    return nb::cast<std::shared_ptr<T>>((*shared)(type));
  };
}

void add(const std::string& name, int ranks, nb::callable collectives, nb::callable gemms) {
  auto group = std::make_shared<NamedGroup>(name, ranks, toMake<Collectives>(std::move(collectives)),
                                            toMake<FusedGemms>(std::move(gemms)));
  const nb::gil_scoped_release release;
  const std::unique_lock lock(registry().mutex);
  if (!registry().groups.emplace(name, std::move(group)).second) {
    throw Error("a group named '" + name + "' is registered already: pass another name, or close that group",
                ErrorCode::InvalidUsage);
  }
}

void remove(const std::string& name) {
  std::shared_ptr<NamedGroup> removed;  // ends after the lock
  const std::unique_lock lock(registry().mutex);
  const auto found = registry().groups.find(name);
  if (found == registry().groups.end()) return;
  removed = std::move(found->second);
  registry().groups.erase(found);
}

}  // namespace

void NamedGroup::requireGpu(int gpu) {
  if (!gpu_) gpu_ = gpu;
  if (gpu != *gpu_) {
    throw Error("group '" + name_ + "' uses GPU " + std::to_string(*gpu_) + " on this rank, the tensor is on GPU " +
                    std::to_string(gpu) + ": move the tensor",
                ErrorCode::InvalidUsage);
  }
}

std::shared_ptr<NamedGroup> findGroup(std::string_view name) {
  const std::shared_lock lock(registry().mutex);
  const auto found = registry().groups.find(name);
  if (found == registry().groups.end()) {
    throw Error("no group is registered as '" + std::string(name) +
                    "', or it has been closed: pass the name that mscclpp.torch.register(comm) returned",
                ErrorCode::InvalidUsage);
  }
  if (found->second->isInherited()) {
    throw Error("this process was forked from the rank that registered '" + std::string(name) +
                    "', whose group it cannot use: call operators in the rank's process, or make another group here",
                ErrorCode::InvalidUsage);
  }
  return found->second;
}

void bindNamedGroups(nb::module_& module) {
  module.def("register_group", &add, "name"_a, "ranks"_a, "collectives"_a, "gemms"_a,
             "Registers a group of so many ranks for operators of PyTorch. collectives, gemms: return the Collectives, "
             "the FusedGemms for a DeviceType. Raises InvalidUsage if the name is in use.");
  module.def("unregister_group", &remove, "name"_a, Unlocked(), "Ends a registration; unknown names are ignored.");
  module.def(
      "group_size", [](const std::string& name) { return findGroup(name)->ranks(); }, "name"_a, Unlocked(),
      "The number of ranks of a registered group. Raises InvalidUsage if there is none of that name.");
}

}  // namespace mscclpp::python
