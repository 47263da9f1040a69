// What the files of the bindings share: one function per area, and the rules for the interpreter's lock.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::python {

namespace nb = nanobind;
using namespace nb::literals;

/// The guard of calls that can block: other Python threads run meanwhile.
using Unlocked = nb::call_guard<nb::gil_scoped_release>;

/// The same for a part of a call.
template <class F>
auto unlocked(F&& function) {
  const nb::gil_scoped_release release;
  return function();
}

/// An object whose destructor runs without the interpreter's lock, since it may wait for peers or join threads. The
/// last owner may be a Python object or C++ code, which holds the lock or does not.
template <class T, class... Args>
std::shared_ptr<T> makeShared(Args&&... args) {
  return std::shared_ptr<T>(new T(std::forward<Args>(args)...), [](T* object) {
    if (!nb::is_alive()) {
      delete object;
      return;
    }
    const nb::gil_scoped_acquire acquire;
    const nb::gil_scoped_release release;
    delete object;
  });
}

/// A size in bytes that the caller gives. Throws Error(InvalidUsage) for a negative one.
inline std::uint64_t toSize(std::int64_t bytes, const char* name) {
  if (bytes >= 0) return static_cast<std::uint64_t>(bytes);
  throw Error(std::string(name) + " is " + std::to_string(bytes) + "; it is not negative", ErrorCode::InvalidUsage);
}

inline nb::bytes toBytes(const std::vector<char>& data) {
  return nb::bytes(data.data(), data.size());
}
inline std::vector<char> fromBytes(const nb::bytes& data) {
  return {data.c_str(), data.c_str() + data.size()};
}

/// Makes a class with serialize() and deserialize() one that can be pickled.
template <class T>
nb::class_<T>& bindPickling(nb::class_<T>& type) {
  return type.def("__getstate__", [](const T& self) { return toBytes(self.serialize()); })
      .def("__setstate__", [](T& self, const nb::bytes& state) {
        new (&self) T(unlocked([serialized = fromBytes(state)] { return T::deserialize(serialized); }));
      });
}

/// Pointers are integers in Python: what data_ptr() of a tensor returns.
inline void* toPointer(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}
inline std::uintptr_t toAddress(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

void bindErrors(nb::module_& module);
void bindTypes(nb::module_& module);
void bindEnvironment(nb::module_& module);
void bindBootstrap(nb::module_& module);
void bindTransport(nb::module_& module);
void bindCommunicator(nb::module_& module);
void bindMemory(nb::module_& module);
void bindTrace(nb::module_& module);
void bindCollectives(nb::module_& module);
void bindFusedGemms(nb::module_& module);
void bindTuning(nb::module_& module);
void bindAlgorithms(nb::module_& module);
void bindNamedGroups(nb::module_& module);
void bindChannels(nb::module_& module);
void bindProxy(nb::module_& module);
void bindSwitchChannels(nb::module_& module);
void bindJit(nb::module_& module);
void bindPlans(nb::module_& module);
void bindPlanLanguage(nb::module_& module);
void bindPlanChunks(nb::module_& module);
void bindPlanLibrary(nb::module_& module);
void bindExecutor(nb::module_& module);
void bindMoe(nb::module_& module);

}  // namespace mscclpp::python
