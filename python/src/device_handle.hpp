// Device handles in Python: their bytes are arguments of kernels, and on CPU ranks the host calls them itself.
#pragma once

#include <type_traits>

#include "module.hpp"
#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/communicator/wait_monitor.hpp"

namespace mscclpp::python {

/// A handle, who calls it, and who knows why one of its waits failed.
template <class Handle>
struct BoundHandle {
  static_assert(std::is_trivially_copyable_v<Handle> && alignof(Handle) == 8);
  Handle value;
  DeviceType device;
  std::shared_ptr<WaitMonitor> monitor;  ///< may be null
};

void requireCpu(DeviceType device);
/// Throws the reason of a wait that has failed.
[[noreturn]] void throwFailedWait(const std::shared_ptr<WaitMonitor>& monitor);

/// A method of Python for the host side of a handle: `function` takes the handle. Throws Error(InvalidUsage) for the
/// handle of a GPU.
template <class Handle, class Result, class... Args>
auto callOnHost(Result (*function)(const Handle&, Args...)) {
  return [function](const BoundHandle<Handle>& self, Args... args) {
    requireCpu(self.device);
    return function(self.value, args...);
  };
}
/// The same for a function that returns whether its wait has succeeded: throws the reason if it has not.
template <class Handle, class... Args>
auto waitOnHost(bool (*function)(const Handle&, Args...)) {
  return [call = callOnHost(function)](const BoundHandle<Handle>& self, Args... args) {
    if (!call(self, args...)) throwFailedWait(self.monitor);
  };
}

/// What all classes of handles have. `Raw` is what kernels take, if Handle adds to it.
template <class Handle, class Raw = Handle>
nb::class_<BoundHandle<Handle>> bindHandle(nb::module_& module, const char* name, const char* documentation) {
  return nb::class_<BoundHandle<Handle>>(module, name, documentation)
      .def_prop_ro(
          "raw",
          [](const BoundHandle<Handle>& self) { return nb::bytes(static_cast<const Raw*>(&self.value), sizeof(Raw)); },
          "The bytes of the handle: an argument of a kernel, or an element of an array in memory that kernels read.");
}

/// The host side of wait() and poll().
template <class Handle>
nb::class_<BoundHandle<Handle>> bindWaits(nb::class_<BoundHandle<Handle>> handle) {
  handle
      .def(
          "wait", waitOnHost(+[](const Handle& self) { return self.wait(); }), Unlocked(),
          "Waits for the next signal and consumes it; what was written before it is visible afterwards. Raises Timeout "
          "after MSCCLPP_WAIT_TIMEOUT, RemoteError if a rank fails or the peer has left, and Aborted.")
      .def("poll", callOnHost(+[](const Handle& self) { return self.poll(); }),
           "Consumes a signal if there is one, and returns whether there was.");
  return handle;
}

/// Of handles by which kernels, or CPU ranks, signal the peer at once.
template <class Handle>
nb::class_<BoundHandle<Handle>> bindSignals(nb::class_<BoundHandle<Handle>> handle) {
  handle.def("signal", callOnHost(+[](const Handle& self, std::uint64_t count) { self.signal(count); }), "count"_a = 1,
             "Signals the peer; what this thread wrote before is visible to who waits for it.");
  return bindWaits(handle);
}

/// The handle of a semaphore, or of a channel on it.
template <class Handle, class Semaphore>
BoundHandle<Handle> bound(const Handle& handle, Semaphore& semaphore) {
  return {handle, semaphore.connection().localDevice().type, semaphore.monitor()};
}

constexpr const char* deviceHandleDoc = "The handle. It keeps this object alive.";

}  // namespace mscclpp::python
