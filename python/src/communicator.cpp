// The communicator, semaphores, and the futures of what peers send.
#include "mscclpp/host/communicator/communicator.hpp"

#include <nanobind/stl/shared_ptr.h>

#include <chrono>
#include <future>

#include "module.hpp"

namespace mscclpp::python {

namespace {

template <class T>
void bindFuture(nb::module_& module, const char* name) {
  using Future = std::shared_future<T>;
  nb::class_<Future>(module, name, "What a peer sends; nothing is received before get().")
      .def(
          "get", [](const Future& self) { return self.get(); }, Unlocked(),
          "Waits for it, as calls of the bootstrap do, and returns it. May be called again.");
}

void bindConnectedSemaphores(nb::module_& module) {
  auto stub =
      nb::class_<SemaphoreStub>(module, "SemaphoreStub", "One end of a semaphore before the two are connected.");
  bindPickling(stub)
      .def(nb::init<const Connection&>(), "connection"_a, Unlocked())
      .def("memory", &SemaphoreStub::memory, nb::rv_policy::copy)
      .def(
          "serialize", [](const SemaphoreStub& self) { return toBytes(self.serialize()); }, "Bytes for the peer.")
      .def_static(
          "deserialize", [](const nb::bytes& data) { return SemaphoreStub::deserialize(fromBytes(data)); }, "data"_a);
  nb::class_<Semaphore>(module, "Semaphore", "A local and a remote counter of 8 bytes, bound to a connection.")
      .def(nb::init<const SemaphoreStub&, const SemaphoreStub&>(), "local_stub"_a, "remote_stub"_a, Unlocked())
      .def("connection", &Semaphore::connection, nb::rv_policy::copy)
      .def("local_memory", &Semaphore::localMemory, nb::rv_policy::copy, "The counter that the peer increments.")
      .def("remote_memory", &Semaphore::remoteMemory, nb::rv_policy::copy, "The counter that this rank increments.");
}

}  // namespace

void bindCommunicator(nb::module_& module) {
  bindConnectedSemaphores(module);
  bindFuture<Connection>(module, "ConnectionFuture");
  bindFuture<RegisteredMemory>(module, "RegisteredMemoryFuture");
  bindFuture<Semaphore>(module, "SemaphoreFuture");
  using Endpointed = std::shared_future<Connection> (Communicator::*)(const Endpoint&, int, int);
  using Configured = std::shared_future<Connection> (Communicator::*)(const EndpointConfig&, int, int);
  nb::class_<Communicator>(
      module, "Communicator",
      "A bootstrap and a context. Sends take effect at once; receives return futures. Each send or "
      "receive pairs with the peer's on the same tag.")
      .def(nb::new_([](std::shared_ptr<Bootstrap> bootstrap, std::shared_ptr<Context> context) {
             return makeShared<Communicator>(std::move(bootstrap), std::move(context));
           }),
           "bootstrap"_a, "context"_a = nb::none(), Unlocked())
      .def("bootstrap", &Communicator::bootstrap)
      .def("context", &Communicator::context)
      .def(
          "register_memory",
          [](Communicator& self, std::uintptr_t data, std::size_t size, TransportFlags transports) {
            return self.registerMemory(toPointer(data), size, transports);
          },
          "data"_a, "size"_a, "transports"_a, Unlocked(), "As Context.register_memory().")
      .def("send_memory", &Communicator::sendMemory, "memory"_a, "remote_rank"_a, "tag"_a = 0, Unlocked())
      .def("recv_memory", &Communicator::recvMemory, "remote_rank"_a, "tag"_a = 0, Unlocked())
      .def("connect", static_cast<Endpointed>(&Communicator::connect), "local_endpoint"_a, "remote_rank"_a, "tag"_a = 0,
           Unlocked())
      .def("connect", static_cast<Configured>(&Communicator::connect), "local_config"_a, "remote_rank"_a, "tag"_a = 0,
           Unlocked(), "Sends this rank's endpoint now; the future receives the peer's and connects the two.")
      .def("build_semaphore", &Communicator::buildSemaphore, "connection"_a, "remote_rank"_a, "tag"_a = 0, Unlocked())
      .def("remote_rank_of", &Communicator::remoteRankOf, "connection"_a)
      .def("tag_of", &Communicator::tagOf, "connection"_a)
      .def(
          "set_wait_timeout",
          [](Communicator& self, double seconds) {
            self.setWaitTimeout(std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds)));
          },
          "seconds"_a, Unlocked(),
          "The timeout of waits of collectives that are made later; the same on all ranks. By default "
          "MSCCLPP_WAIT_TIMEOUT.")
      .def("abort", &Communicator::abort, Unlocked(),
           "Ends all current and later waits, from any thread: they raise Aborted.");
}

}  // namespace mscclpp::python
