// Contexts, endpoints, connections and registered memory.
#include <nanobind/operators.h>
#include <nanobind/stl/shared_ptr.h>

#include "module.hpp"
#include "mscclpp/host/transport/context.hpp"

namespace mscclpp::python {

namespace {

void bindEndpoints(nb::module_& module) {
  nb::enum_<EndpointConfig::Ib::Mode>(module, "IbMode", "How signals are sent over verbs.")
      .value("Default", EndpointConfig::Ib::Mode::Default, "MSCCLPP_IBV_MODE.")
      .value("Host", EndpointConfig::Ib::Mode::Host, "By atomics of the network device.")
      .value("HostNoAtomic", EndpointConfig::Ib::Mode::HostNoAtomic, "By messages to the peer's host.");
  nb::class_<EndpointConfig::Ib>(module, "EndpointConfigIb", "Settings of the verbs transports; -1: chosen.")
      .def(nb::init<>())
      .def_rw("device_index", &EndpointConfig::Ib::deviceIndex)
      .def_rw("port", &EndpointConfig::Ib::port)
      .def_rw("gid_index", &EndpointConfig::Ib::gidIndex)
      .def_rw("max_cq_size", &EndpointConfig::Ib::maxCqSize)
      .def_rw("max_cq_poll_num", &EndpointConfig::Ib::maxCqPollNum)
      .def_rw("max_send_wr", &EndpointConfig::Ib::maxSendWr)
      .def_rw("max_recv_wr", &EndpointConfig::Ib::maxRecvWr)
      .def_rw("max_wr_per_send", &EndpointConfig::Ib::maxWrPerSend)
      .def_rw("mode", &EndpointConfig::Ib::mode)
      .def_rw("sl", &EndpointConfig::Ib::sl)
      .def_rw("traffic_class", &EndpointConfig::Ib::trafficClass)
      .def_rw("pkey_index", &EndpointConfig::Ib::pkeyIndex)
      .def_rw("queue_pairs", &EndpointConfig::Ib::queuePairs)
      .def_rw("timeout", &EndpointConfig::Ib::timeout)
      .def_rw("retry_count", &EndpointConfig::Ib::retryCount);
  nb::class_<EndpointConfig>(module, "EndpointConfig", "The settings of one side of a connection.")
      .def(nb::init<>())
      .def(nb::init<Transport>(), "transport"_a)
      .def(nb::init<Transport, Device, int, EndpointConfig::Ib>(), "transport"_a, "device"_a,
           "max_write_queue_size"_a = -1, "ib"_a = EndpointConfig::Ib{})
      .def_rw("transport", &EndpointConfig::transport)
      .def_rw("device", &EndpointConfig::device)
      .def_rw("max_write_queue_size", &EndpointConfig::maxWriteQueueSize)
      .def_rw("ib", &EndpointConfig::ib);
  nb::implicitly_convertible<Transport, EndpointConfig>();
  auto endpoint =
      nb::class_<Endpoint>(module, "Endpoint", "One side of a connection; Context.create_endpoint() creates it.");
  bindPickling(endpoint)
      .def("config", &Endpoint::config, nb::rv_policy::copy)
      .def("transport", &Endpoint::transport)
      .def("device", &Endpoint::device, nb::rv_policy::copy)
      .def("max_write_queue_size", &Endpoint::maxWriteQueueSize)
      .def(
          "serialize", [](const Endpoint& self) { return toBytes(self.serialize()); },
          "Bytes for the peer. Over TCP they contain a secret.")
      .def_static(
          "deserialize", [](const nb::bytes& data) { return Endpoint::deserialize(fromBytes(data)); }, "data"_a,
          "Raises InvalidUsage for other bytes.");
}

void bindConnections(nb::module_& module) {
  nb::class_<Connection>(
      module, "Connection",
      "One-sided copies from this rank to one peer, issued by one thread at a time, which take "
      "effect in order. Offsets and sizes are bytes. Raises InvalidUsage for ranges beyond a memory.")
      .def("write", &Connection::write, "dst"_a, "dst_offset"_a, "src"_a, "src_offset"_a, "size"_a, Unlocked(),
           "Starts to copy from this rank's memory to the peer's. The source must not change until a flush.")
      .def(
          "update_and_sync",
          [](Connection& self, const RegisteredMemory& dst, std::uint64_t offset, std::uintptr_t src,
             std::uint64_t value) {
            self.updateAndSync(dst, offset, static_cast<std::uint64_t*>(toPointer(src)), value);
          },
          "dst"_a, "dst_offset"_a, "src"_a, "new_value"_a, Unlocked(),
          "Sets the 8 bytes of host memory at address `src`, and those at the destination after all earlier writes.")
      .def("flush", &Connection::flush, "timeout_usec"_a = -1, Unlocked(),
           "Returns when all earlier operations have completed. Raises Timeout after `timeout_usec` microseconds; -1: "
           "30 s.")
      .def("issued", &Connection::issued, "The number of operations issued so far.")
      .def("completed", &Connection::completed, Unlocked(),
           "A flush that does not wait: of the operations issued, numbered from 1, all up to this one have completed.")
      .def("write_value", &Connection::writeValue, "dst"_a, "dst_offset"_a, "value"_a, Unlocked(),
           "Writes 8 bytes, in order with the other operations. Raises InvalidUsage unless supports_write_value().")
      .def("supports_write_value", &Connection::supportsWriteValue,
           "True if each rank has mapped the other's memory, and over TCP.")
      .def("transport", &Connection::transport)
      .def("remote_transport", &Connection::remoteTransport)
      .def("context", &Connection::context)
      .def("local_device", &Connection::localDevice, nb::rv_policy::copy)
      .def("get_max_write_queue_size", &Connection::getMaxWriteQueueSize)
      .def(nb::self == nb::self, nb::sig("def __eq__(self, arg: object, /) -> bool"));
  auto memory = nb::class_<RegisteredMemory>(module, "RegisteredMemory", "A memory range that peers can access.");
  bindPickling(memory)
      .def(
          "data", [](const RegisteredMemory& self) { return toAddress(self.data()); },
          "Its address in this process; 0 for a peer's memory that cannot be mapped.")
      .def("size", &RegisteredMemory::size, "In bytes.")
      .def("transports", &RegisteredMemory::transports)
      .def(
          "serialize", [](const RegisteredMemory& self) { return toBytes(self.serialize()); }, "Bytes for the peers.")
      .def_static(
          "deserialize",
          [](const nb::bytes& data) {
            return unlocked([serialized = fromBytes(data)] { return RegisteredMemory::deserialize(serialized); });
          },
          "data"_a, "Maps the memory that serialize() of another rank describes. Raises InvalidUsage for other bytes.");
}

}  // namespace

void bindTransport(nb::module_& module) {
  bindEndpoints(module);
  bindConnections(module);
  nb::class_<Context>(module, "Context", "One rank's resources for communication with others.")
      .def(nb::new_([] { return Context::create(); }), Unlocked())
      .def_static("create", &Context::create, Unlocked())
      .def(
          "register_memory",
          [](Context& self, std::uintptr_t data, std::size_t size, TransportFlags transports) {
            return self.registerMemory(toPointer(data), size, transports);
          },
          "data"_a, "size"_a, "transports"_a, Unlocked(),
          "Lets peers access `size` bytes at an address. Raises InvalidUsage for memory that a transport cannot "
          "access.")
      .def("create_endpoint", &Context::createEndpoint, "config"_a, Unlocked())
      .def("connect", &Context::connect, "local_endpoint"_a, "remote_endpoint"_a, Unlocked(),
           "Connects a local endpoint to a peer's; the peer does the same with the roles exchanged.");
}

}  // namespace mscclpp::python
