// FIFOs, proxy services, and the port channels that they serve.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include <optional>

#include "device_handle.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/proxy/proxy_service.hpp"

namespace mscclpp::python {

namespace {

void bindTriggers(nb::module_& module) {
  module.attr("TriggerData") = TriggerData;
  module.attr("TriggerFlag") = TriggerFlag;
  module.attr("TriggerSync") = TriggerSync;
  nb::class_<ProxyTrigger>(module, "ProxyTrigger",
                           "An entry of a FIFO: two words, of which a port channel's request uses bits as fields.")
      .def(nb::init<std::uint64_t, std::uint64_t>(), "fst"_a = 0, "snd"_a = 0)
      .def(nb::init<TriggerType, MemoryId, std::uint64_t, MemoryId, std::uint64_t, std::uint64_t, SemaphoreId>(),
           "type"_a, "dst"_a, "dst_offset"_a, "src"_a, "src_offset"_a, "size"_a, "semaphore"_a,
           "The request of a port channel: `type` is an or of TriggerData, TriggerFlag and TriggerSync.")
      .def_prop_rw(
          "fst", [](const ProxyTrigger& self) { return self.fst; },
          [](ProxyTrigger& self, std::uint64_t value) { self.fst = value; })
      .def_prop_rw(
          "snd", [](const ProxyTrigger& self) { return self.snd; },
          [](ProxyTrigger& self, std::uint64_t value) { self.snd = value; }, "Its highest bit is the FIFO's.")
      .def_prop_ro("type", [](const ProxyTrigger& self) { return self.request().type; })
      .def_prop_ro("dst", [](const ProxyTrigger& self) { return self.request().dstMemory; })
      .def_prop_ro("dst_offset", [](const ProxyTrigger& self) { return self.request().dstOffset; })
      .def_prop_ro("src", [](const ProxyTrigger& self) { return self.request().srcMemory; })
      .def_prop_ro("src_offset", [](const ProxyTrigger& self) { return self.request().srcOffset; })
      .def_prop_ro("size", [](const ProxyTrigger& self) { return self.request().size; })
      .def_prop_ro("semaphore", [](const ProxyTrigger& self) { return self.request().semaphore; });
}

/// A FIFO without a proxy: Python takes the triggers itself.
struct PolledFifo {
  Fifo fifo;
  DeviceType device;
  bool hasPolled = false;

  PolledFifo(int size, DeviceType device) : fifo(size, device), device(device) {}
  std::optional<ProxyTrigger> poll() {
    ProxyTrigger trigger;
    hasPolled = fifo.poll(trigger);
    return hasPolled ? std::optional(trigger) : std::nullopt;
  }
  void pop() {
    if (!hasPolled) {
      throw Error("Fifo.pop() removes the trigger that poll() has returned: call poll() first",
                  ErrorCode::InvalidUsage);
    }
    hasPolled = false;
    fifo.pop();
  }
};

void bindFifo(nb::module_& module) {
  bindHandle<FifoHandle>(module, "FifoDeviceHandle", "The pushing side of a Fifo.")
      .def(
          "push",
          [](const BoundHandle<FifoHandle>& self, const ProxyTrigger& trigger) {
            requireCpu(self.device);
            const std::uint64_t position = self.value.push(trigger);
            if (position == invalidTriggerPosition) throwFailedWait(self.monitor);
            return position;
          },
          "trigger"_a, Unlocked(),
          "Pushes a trigger, and returns its position, counted from 0. Waits while the FIFO is full.")
      .def("poll", callOnHost(+[](const FifoHandle& self, std::uint64_t position) { return self.poll(position); }),
           "position"_a, "Whether the trigger at a position has been popped.")
      .def("sync", waitOnHost(+[](const FifoHandle& self, std::uint64_t position) { return self.sync(position); }),
           "position"_a, Unlocked(), "Waits until the trigger at a position has been popped.");
  nb::class_<PolledFifo>(
      module, "Fifo",
      "Triggers from kernels to the host, or from threads of a CPU rank. `size`: a power of two. Any "
      "number of threads push, one polls and pops.")
      .def(nb::init<int, DeviceType>(), "size"_a = DEFAULT_FIFO_SIZE, "device_type"_a = DeviceType::GPU)
      .def("poll", &PolledFifo::poll, "The next trigger, which stays in the FIFO until pop(); None if there is none.")
      .def("pop", &PolledFifo::pop, "Removes the trigger that poll() has returned.")
      .def(
          "tail", [](const PolledFifo& self) { return self.fifo.tail(); }, "The number of triggers popped so far.")
      .def("size", [](const PolledFifo& self) { return self.fifo.size(); })
      .def(
          "device_handle",
          [](const PolledFifo& self) {
            return BoundHandle<FifoHandle>{self.fifo.deviceHandle(), self.device, nullptr};
          },
          nb::keep_alive<0, 1>(), deviceHandleDoc);
}

void bindPortChannels(nb::module_& module) {
  constexpr const char* putDoc =
      "Requests a copy of `size` bytes to the peer. The source must not change until a flush. Offsets are bytes.";
  constexpr const char* signalDoc = "Requests a signal to the peer, after the data of all earlier requests.";
  constexpr const char* flushDoc = "Waits until all earlier requests have completed: their sources may be overwritten.";
  using Offset = std::uint64_t;
  using Base = BasePortChannelHandle;
  bindWaits(bindHandle<Base>(module, "BasePortChannelDeviceHandle", "The handle of a BasePortChannel."))
      .def("put",
           waitOnHost(+[](const Base& self, MemoryId dst, Offset dstOffset, MemoryId src, Offset srcOffset,
                          Offset size) { return self.put(dst, dstOffset, src, srcOffset, size); }),
           "dst"_a, "dst_offset"_a, "src"_a, "src_offset"_a, "size"_a, Unlocked(), putDoc)
      .def("put_with_signal",
           waitOnHost(+[](const Base& self, MemoryId dst, Offset dstOffset, MemoryId src, Offset srcOffset,
                          Offset size) { return self.putWithSignal(dst, dstOffset, src, srcOffset, size); }),
           "dst"_a, "dst_offset"_a, "src"_a, "src_offset"_a, "size"_a, Unlocked(), "put() and signal() as one request.")
      .def("signal", waitOnHost(+[](const Base& self) { return self.signal(); }), Unlocked(), signalDoc)
      .def("flush", waitOnHost(+[](const Base& self) { return self.flush(); }), Unlocked(), flushDoc);
  using Port = PortChannelHandle;
  bindWaits(bindHandle<Port>(module, "PortChannelDeviceHandle", "The handle of a PortChannel."))
      .def("put", waitOnHost(+[](const Port& self, Offset dstOffset, Offset srcOffset, Offset size) {
             return self.put(dstOffset, srcOffset, size);
           }),
           "dst_offset"_a, "src_offset"_a, "size"_a, Unlocked(), putDoc)
      .def("put_with_signal", waitOnHost(+[](const Port& self, Offset dstOffset, Offset srcOffset, Offset size) {
             return self.putWithSignal(dstOffset, srcOffset, size);
           }),
           "dst_offset"_a, "src_offset"_a, "size"_a, Unlocked(), "put() and signal() as one request.")
      .def("put_with_signal_and_flush",
           waitOnHost(+[](const Port& self, Offset dstOffset, Offset srcOffset, Offset size) {
             return self.putWithSignalAndFlush(dstOffset, srcOffset, size);
           }),
           "dst_offset"_a, "src_offset"_a, "size"_a, Unlocked(), "put(), signal() and flush() as one request.")
      .def("signal", waitOnHost(+[](const Port& self) { return self.signal(); }), Unlocked(), signalDoc)
      .def("flush", waitOnHost(+[](const Port& self) { return self.flush(); }), Unlocked(), flushDoc);

  nb::class_<BasePortChannel>(module, "BasePortChannel",
                              "Kernels request copies and signals of a proxy service; each call names its memories.")
      .def(
          "device_handle", [](const BasePortChannel& self) { return bound(self.deviceHandle(), *self.semaphore()); },
          nb::keep_alive<0, 1>(), deviceHandleDoc);
  nb::class_<PortChannel>(module, "PortChannel", "The same between one memory of this rank and one of the peer.")
      .def(
          "device_handle", [](const PortChannel& self) { return bound(self.deviceHandle(), *self.semaphore()); },
          nb::keep_alive<0, 1>(), deviceHandleDoc);
}

void bindProxyService(nb::module_& module) {
  nb::class_<ProxyService>(
      module, "ProxyService",
      "A thread that executes the requests of port channels, for kernels of the current GPU or for a CPU rank. An "
      "invalid request ends it and the waits on its channels: check() and stop_proxy() raise the error. No other "
      "thread "
      "uses the connections while it runs. As a context manager it runs within the block.")
      .def(nb::new_([](int fifoSize, DeviceType device, int fifos) {
             return makeShared<ProxyService>(
                 ProxyServiceOptions{.thread = {.device = device}, .fifos = fifos, .fifoSize = fifoSize});
           }),
           "fifo_size"_a = DEFAULT_FIFO_SIZE, "device_type"_a = DeviceType::GPU, "fifos"_a = 1, Unlocked(),
           "`fifo_size`: slots, a power of two. With several `fifos` channels contend less for one counter.")
      .def("start_proxy", &ProxyService::startProxy, "blocking"_a = false, Unlocked(),
           "Starts the thread; with `blocking`, returns when it runs.")
      .def("stop_proxy", &ProxyService::stopProxy, Unlocked(),
           "Ends the thread once all requests have arrived. Raises the error that ended it before.")
      .def("check", &ProxyService::check, Unlocked(), "Raises the error that ended the thread, if there was one.")
      .def("running", &ProxyService::running)
      .def(
          "__enter__",
          [](nb::handle_t<ProxyService> self) {
            unlocked([&service = nb::cast<ProxyService&>(self)] { service.startProxy(true); });
            return nb::borrow(self);
          },
          nb::sig("def __enter__(self) -> ProxyService"))
      .def(
          "__exit__",
          [](ProxyService& self, const nb::object& error, const nb::args&) {
            if (error.is_none()) return unlocked([&] { self.stopProxy(); });
            // The error of the block is raised, not one that follows from it.
            try {
              unlocked([&] { self.stopProxy(); });
            } catch (const BaseError&) {
            }
          },
          "error_type"_a.none(), "rest"_a)
      .def("build_and_add_semaphore", &ProxyService::buildAndAddSemaphore, "communicator"_a, "connection"_a, Unlocked(),
           "Builds a semaphore with the peer, which makes the same call, and returns its id; waits for the peer.")
      .def("add_semaphore", static_cast<SemaphoreId (ProxyService::*)(const Semaphore&)>(&ProxyService::addSemaphore),
           "semaphore"_a, Unlocked(), "Adds a semaphore and returns its id: 0, 1, ...")
      .def("add_semaphore",
           static_cast<SemaphoreId (ProxyService::*)(std::shared_ptr<Host2DeviceSemaphore>)>(
               &ProxyService::addSemaphore),
           "semaphore"_a, Unlocked())
      .def("add_memory", &ProxyService::addMemory, "memory"_a, Unlocked(),
           "Adds a memory of this rank or of a peer and returns its id: 0, 1, ...")
      .def("next_memory_id", &ProxyService::nextMemoryId, "count"_a = 1,
           "The first of the next `count` ids that add_memory() returns.")
      .def("semaphore", &ProxyService::semaphore, "semaphore_id"_a)
      .def(
          "base_port_channel",
          [](const ProxyService& self, SemaphoreId id) {
            return makeShared<BasePortChannel>(self.basePortChannel(id));
          },
          "semaphore_id"_a, "Raises InvalidUsage for a semaphore that has not been added.")
      .def(
          "port_channel",
          [](const ProxyService& self, SemaphoreId id, MemoryId dst, MemoryId src) {
            return makeShared<PortChannel>(self.portChannel(id, dst, src));
          },
          "semaphore_id"_a, "dst"_a, "src"_a, "Between the peer's memory `dst` and this rank's `src`, by their ids.");
}

}  // namespace

void bindProxy(nb::module_& module) {
  bindTriggers(module);
  bindFifo(module);
  bindPortChannels(module);
  bindProxyService(module);
}

}  // namespace mscclpp::python
