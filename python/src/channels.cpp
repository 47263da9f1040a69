// Semaphores that hosts or kernels signal, and memory channels.
#include <nanobind/stl/shared_ptr.h>

#include "device_handle.hpp"
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/host/channel/host_semaphore.hpp"
#include "mscclpp/host/channel/memory_channel.hpp"
#include "mscclpp/host/communicator/communicator.hpp"

namespace mscclpp::python {

namespace {

template <class T>
void bindSemaphore(nb::class_<T>& semaphore) {
  semaphore.def(nb::new_([](const Semaphore& from) { return makeShared<T>(from); }), "semaphore"_a, Unlocked())
      .def(nb::new_([](Communicator& communicator, const Connection& connection) {
             return makeShared<T>(communicator, connection);
           }),
           "communicator"_a, "connection"_a, Unlocked(),
           "With the peer of a connection of the communicator, which makes the same call; waits for it.")
      .def("connection", &T::connection, nb::rv_policy::copy);
  if constexpr (requires { typename T::DeviceHandle; }) {
    semaphore.def(
        "device_handle", [](T& self) { return bound(self.deviceHandle(), self); }, nb::keep_alive<0, 1>(),
        deviceHandleDoc);
  }
}

void bindSemaphores(nb::module_& module) {
  bindWaits(bindHandle<Host2DeviceSemaphoreHandle>(module, "Host2DeviceSemaphoreDeviceHandle",
                                                   "The waiting side of a Host2DeviceSemaphore."));
  bindSignals(bindHandle<SemaphoreHandle>(module, "MemoryDevice2DeviceSemaphoreDeviceHandle",
                                          "Both sides of a MemoryDevice2DeviceSemaphore."));

  auto hostToDevice = nb::class_<Host2DeviceSemaphore>(
      module, "Host2DeviceSemaphore", "The host signals, a kernel of the peer waits. One object for each semaphore.");
  bindSemaphore(hostToDevice);
  hostToDevice.def("signal", &Host2DeviceSemaphore::signal, Unlocked(),
                   "Signals the peer after all earlier operations of the connection. Called by one thread at a time.");
  auto hostToHost = nb::class_<Host2HostSemaphore>(
      module, "Host2HostSemaphore",
      "The hosts of both ranks signal and wait, one thread at a time. Takes a connection of DeviceType.CPU.");
  bindSemaphore(hostToHost);
  hostToHost
      .def("signal", &Host2HostSemaphore::signal, Unlocked(),
           "Signals the peer after all earlier operations of the connection.")
      .def("poll", &Host2HostSemaphore::poll, "Consumes a signal if there is one, and returns whether there was.")
      .def("wait", &Host2HostSemaphore::wait, "max_spin_count"_a = 10000000, Unlocked(),
           "Waits for the next signal and consumes it. Raises Timeout after MSCCLPP_WAIT_TIMEOUT or `max_spin_count` "
           "polls (negative: no limit), RemoteError if a rank fails or the peer has left, and Aborted.");
  auto deviceToDevice = nb::class_<MemoryDevice2DeviceSemaphore>(
      module, "MemoryDevice2DeviceSemaphore",
      "Kernels of both ranks signal and wait, over mapped memory. One object for each semaphore.");
  bindSemaphore(deviceToDevice);
}

/// With the sizes of the memories, within which the host's copies stay.
struct SizedMemoryChannelHandle : MemoryChannelHandle {
  std::uint64_t dstBytes;
  std::uint64_t srcBytes;

  void check(std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t size) const {
    checkRange("the peer's", dstOffset, size, dstBytes);
    checkRange("this rank's", srcOffset, size, srcBytes);
  }

 private:
  static void checkRange(const char* whose, std::uint64_t offset, std::uint64_t size, std::uint64_t bytes) {
    if (size <= bytes && offset <= bytes - size) return;
    throw Error("the range of " + std::to_string(size) + " bytes at offset " + std::to_string(offset) + " exceeds " +
                    whose + " memory of " + std::to_string(bytes) + " bytes",
                ErrorCode::InvalidUsage);
  }
};

void bindMemoryChannels(nb::module_& module) {
  bindSignals(bindHandle<BaseMemoryChannelHandle>(module, "BaseMemoryChannelDeviceHandle",
                                                  "The handle of a BaseMemoryChannel."));
  using Sized = SizedMemoryChannelHandle;
  bindSignals(
      bindHandle<Sized, MemoryChannelHandle>(module, "MemoryChannelDeviceHandle", "The handle of a MemoryChannel."))
      .def("put",
           callOnHost(+[](const Sized& self, std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t size) {
             self.check(dstOffset, srcOffset, size);
             self.put(cpu::SerialGroup(), dstOffset, srcOffset, size);
           }),
           "dst_offset"_a, "src_offset"_a, "size"_a, Unlocked(),
           "Copies `size` bytes of this rank's memory to the peer's; signal() tells the peer. Offsets are bytes.")
      .def("get",
           callOnHost(+[](const Sized& self, std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t size) {
             self.check(dstOffset, srcOffset, size);
             self.get(cpu::SerialGroup(), dstOffset, srcOffset, size);
           }),
           "dst_offset"_a, "src_offset"_a, "size"_a, Unlocked(),
           "Copies `size` bytes of the peer's memory, at `dst_offset`, to this rank's, at `src_offset`.");

  using SharedSemaphore = std::shared_ptr<MemoryDevice2DeviceSemaphore>;
  nb::class_<BaseMemoryChannel>(module, "BaseMemoryChannel", "Kernels of two ranks signal each other.")
      .def(nb::new_([](SharedSemaphore semaphore) { return makeShared<BaseMemoryChannel>(std::move(semaphore)); }),
           "semaphore"_a, Unlocked())
      .def(nb::new_([](const Semaphore& semaphore) { return makeShared<BaseMemoryChannel>(semaphore); }), "semaphore"_a,
           Unlocked())
      .def(
          "device_handle", [](const BaseMemoryChannel& self) { return bound(self.deviceHandle(), *self.semaphore()); },
          nb::keep_alive<0, 1>(), deviceHandleDoc);
  nb::class_<MemoryChannel>(
      module, "MemoryChannel",
      "Kernels read and write the peer's mapped memory `dst`, from and to this rank's `src`, and signal each other. "
      "`packet_buffer`: the address of this rank's memory into which the peer puts packets; 0: none. Both memories "
      "stay "
      "registered, but the caller keeps this rank's allocated. Raises InvalidUsage if `dst` is not mapped.")
      .def(nb::new_([](SharedSemaphore semaphore, const RegisteredMemory& dst, const RegisteredMemory& src,
                       std::uintptr_t packetBuffer) {
             return makeShared<MemoryChannel>(std::move(semaphore), dst, src, toPointer(packetBuffer));
           }),
           "semaphore"_a, "dst"_a, "src"_a, "packet_buffer"_a = 0, Unlocked())
      .def(nb::new_([](const Semaphore& semaphore, const RegisteredMemory& dst, const RegisteredMemory& src,
                       std::uintptr_t packetBuffer) {
             return makeShared<MemoryChannel>(semaphore, dst, src, toPointer(packetBuffer));
           }),
           "semaphore"_a, "dst"_a, "src"_a, "packet_buffer"_a = 0, Unlocked())
      .def(
          "device_handle",
          [](const MemoryChannel& self) {
            return bound(Sized{self.deviceHandle(), self.dst().size(), self.src().size()}, *self.semaphore());
          },
          nb::keep_alive<0, 1>(), deviceHandleDoc);
}

}  // namespace

void bindChannels(nb::module_& module) {
  bindSemaphores(module);
  bindMemoryChannels(module);
}

}  // namespace mscclpp::python
