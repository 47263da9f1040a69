// Switch channels: memory of a group of ranks at one multicast address.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include "device_handle.hpp"
#include "mscclpp/host/channel/nvls.hpp"

namespace mscclpp::python {

namespace {

/// A channel with what its handle needs: who calls it, and who knows why a barrier failed.
struct GroupChannel {
  SwitchChannel channel;
  DeviceType device;
  std::shared_ptr<WaitMonitor> monitor;
};

/// The connection of one rank with the communicator that reports its failures.
struct GroupConnection {
  std::shared_ptr<NvlsConnection> connection;
  DeviceType device;
  std::shared_ptr<WaitMonitor> monitor;

  GroupChannel bind(std::uintptr_t address, std::size_t bytes) const {
    return {connection->bindMemory(toPointer(address), bytes), device, monitor};
  }
};

}  // namespace

void bindSwitchChannels(nb::module_& module) {
  bindWaits(bindHandle<SwitchChannelHandle>(
                module, "SwitchChannelDeviceHandle",
                "The handle of a SwitchChannel. In each generation of its barrier every rank calls signal() once, then "
                "wait() once."))
      .def_prop_ro("device_ptr",
                   [](const BoundHandle<SwitchChannelHandle>& self) { return toAddress(self.value.devicePtr); })
      .def_prop_ro(
          "mc_ptr", [](const BoundHandle<SwitchChannelHandle>& self) { return toAddress(self.value.mcPtr); },
          "The multicast address on GPUs; 0 on CPU ranks.")
      .def_prop_ro(
          "buffer_size", [](const BoundHandle<SwitchChannelHandle>& self) { return self.value.bufferSize; },
          "Bytes of each rank.")
      .def("signal", callOnHost(+[](const SwitchChannelHandle& self) { self.signal(); }),
           "Signals all ranks; what this thread wrote before is visible after their wait().");
  nb::class_<GroupChannel>(module, "SwitchChannel",
                           "Memory of all ranks of a group, which kernels reduce from and broadcast to, and barriers.")
      .def(
          "get_device_ptr", [](const GroupChannel& self) { return toAddress(self.channel.getDevicePtr()); },
          "The address of this rank's memory.")
      .def(
          "device_handle",
          [](const GroupChannel& self) {
            return BoundHandle<SwitchChannelHandle>{self.channel.deviceHandle(), self.device, self.monitor};
          },
          nb::keep_alive<0, 1>(), deviceHandleDoc);
  nb::class_<GroupConnection>(module, "NvlsConnection",
                              "A group of ranks whose memory is bound to multicast addresses, part by part.")
      .def(
          "bind_allocated_memory", &GroupConnection::bind, "device_ptr"_a, "size"_a, Unlocked(),
          "Maps `size` bytes at an address of this rank together with those of the others. All ranks call it. On GPUs: "
          "memory of RawGpuBuffer, with bytes() as the size; on CPU ranks: of HostBuffer. It stays allocated as long "
          "as "
          "the channel. Raises on every rank if sizes differ or memory is not suitable.")
      .def(
          "granularity", [](const GroupConnection& self) { return self.connection->granularity(); },
          "Addresses and sizes must be multiples of this.")
      .def(
          "buffer_size", [](const GroupConnection& self) { return self.connection->bufferSize(); },
          "Bytes that channels can take.");
  module.def(
      "connect_nvls_collective",
      [](const std::shared_ptr<Communicator>& communicator, std::vector<int> ranks, std::size_t bufferSize,
         DeviceType device) {
        auto connection = connectNvlsCollectiveOn(device, communicator, std::move(ranks), bufferSize);
        return GroupConnection{std::move(connection), device, communicator->monitor(device)};
      },
      "communicator"_a, "all_ranks"_a, "buffer_size"_a, "device_type"_a = DeviceType::GPU, Unlocked(),
      "Called by each of the ranks with the same arguments; `buffer_size` bytes for each rank. CPU ranks do what the "
      "switch does in loops. Raises on every rank, with the reason and the rank, if multicast is not supported or is "
      "disabled (MSCCLPP_FORCE_DISABLE_NVLS, NCCL_NVLS_ENABLE=0) or a step fails.");
}

}  // namespace mscclpp::python
