// Bootstraps, and how this process became a rank.
#include "mscclpp/host/bootstrap/bootstrap.hpp"

#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "module.hpp"
#include "mscclpp/host/launch/process_group.hpp"

namespace mscclpp::python {

namespace {

UniqueId toUniqueId(const nb::bytes& data) {
  UniqueId id;
  if (data.size() != id.size()) {
    throw Error("a UniqueId has " + std::to_string(id.size()) + " bytes, not " + std::to_string(data.size()) +
                    ": pass bytes(unique_id) of rank 0",
                ErrorCode::InvalidUsage);
  }
  std::copy_n(data.c_str(), id.size(), reinterpret_cast<char*>(id.data()));
  return id;
}

nb::bytes bytesOf(const UniqueId& id) {
  return nb::bytes(reinterpret_cast<const char*>(id.data()), id.size());
}

// Messages by address have a size of type int.
int toMessageSize(std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    throw Error("a message of a bootstrap has at most 2 GiB, not " + std::to_string(bytes) +
                    " bytes: use a collective, or several messages",
                ErrorCode::InvalidUsage);
  }
  return static_cast<int>(bytes);
}

std::chrono::milliseconds toMilliseconds(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9)) {
    throw Error("a timeout is a number of seconds, not " + std::to_string(seconds), ErrorCode::InvalidUsage);
  }
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

nb::typed<nb::list, nb::bytes> allGatherBytes(Bootstrap& bootstrap, const nb::bytes& data) {
  const auto ranks = static_cast<std::size_t>(bootstrap.getNranks());
  const auto own = static_cast<std::size_t>(bootstrap.getRank());
  const int bytes = toMessageSize(data.size());
  std::vector<char> all(ranks * data.size());
  std::copy_n(data.c_str(), data.size(), all.begin() + static_cast<std::ptrdiff_t>(own * data.size()));
  unlocked([&] { bootstrap.allGather(all.data(), bytes); });
  nb::typed<nb::list, nb::bytes> parts;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    parts.append(nb::bytes(all.data() + rank * data.size(), data.size()));
  return parts;
}

void bindInterface(nb::module_& module) {
  nb::class_<Bootstrap>(module, "Bootstrap",
                        "Rank discovery and small messages. Calls may block; they raise Timeout, and RemoteError that "
                        "names a rank which has failed.")
      .def("get_rank", &Bootstrap::getRank)
      .def("get_n_ranks", &Bootstrap::getNranks)
      .def("get_n_ranks_per_node", &Bootstrap::getNranksPerNode, Unlocked(), "Ranks on this host.")
      .def("get_n_ranks_per_ipc_domain", &Bootstrap::getNranksPerIpcDomain, Unlocked(),
           "Ranks that can map each other's GPU memory.")
      .def(
          "send",
          [](Bootstrap& self, const nb::bytes& data, int peer, int tag) {
            const std::vector<char> message = fromBytes(data);
            unlocked([&] { self.send(message, peer, tag); });
          },
          "data"_a, "peer"_a, "tag"_a, "Sends bytes to a rank, which receives them with the same tag.")
      .def(
          "send",
          [](Bootstrap& self, std::uintptr_t data, std::size_t size, int peer, int tag) {
            self.send(toPointer(data), toMessageSize(size), peer, tag);
          },
          "data"_a, "size"_a, "peer"_a, "tag"_a, Unlocked(), "Sends `size` bytes of host memory at an address.")
      .def(
          "recv",
          [](Bootstrap& self, int peer, int tag) {
            std::vector<char> message;
            unlocked([&] { self.recv(message, peer, tag); });
            return toBytes(message);
          },
          "peer"_a, "tag"_a, "Returns the next bytes that a rank sent with this tag.")
      .def(
          "recv",
          [](Bootstrap& self, std::uintptr_t data, std::size_t size, int peer, int tag) {
            self.recv(toPointer(data), toMessageSize(size), peer, tag);
          },
          "data"_a, "size"_a, "peer"_a, "tag"_a, Unlocked(), "Receives `size` bytes to host memory at an address.")
      .def("all_gather", &allGatherBytes, "data"_a,
           "Returns the bytes of all ranks, in rank order; all ranks pass the same length.")
      .def(
          "all_gather",
          [](Bootstrap& self, std::uintptr_t data, std::size_t size) {
            self.allGather(toPointer(data), toMessageSize(size));
          },
          "data"_a, "size"_a, Unlocked(),
          "The same for host memory at an address: one block of `size` bytes for each rank; the caller has filled in "
          "its own.")
      .def("barrier", &Bootstrap::barrier, Unlocked(), "Returns once every rank has called it.")
      .def("group_barrier", &Bootstrap::groupBarrier, "ranks"_a, Unlocked(),
           "Returns once each of `ranks`, of which the caller is one, has called it with the same set.")
      .def("abort", &Bootstrap::abort, Unlocked(),
           "Ends blocked and later calls of this rank, from any thread: they raise Aborted.");
}

}  // namespace

void bindBootstrap(nb::module_& module) {
  nb::class_<UniqueId>(module, "UniqueId",
                       "A rendezvous id, which rank 0 creates and every rank needs; as confidential as a password. "
                       "Can be pickled; bytes(id) and UniqueId(data) are the same by hand.")
      .def(
          "__init__", [](UniqueId* self, const nb::bytes& data) { new (self) UniqueId(toUniqueId(data)); }, "data"_a)
      .def("__bytes__", &bytesOf)
      .def("__getstate__", &bytesOf)
      .def("__setstate__", [](UniqueId& self, const nb::bytes& state) { new (&self) UniqueId(toUniqueId(state)); })
      .def(nb::self == nb::self, nb::sig("def __eq__(self, arg: object, /) -> bool"));
  bindInterface(module);
  const auto create = [](int rank, int ranks) { return makeShared<TcpBootstrap>(rank, ranks); };
  nb::class_<TcpBootstrap, Bootstrap>(module, "TcpBootstrap",
                                      "The bootstrap over TCP, authenticated both ways. A rank that fails is detected: "
                                      "every blocking call then raises RemoteError, which names it.")
      .def(nb::new_(create), "rank"_a, "n_ranks"_a)
      .def_static("create", create, "rank"_a, "n_ranks"_a)
      .def_static("create_unique_id", &TcpBootstrap::createUniqueId, Unlocked(),
                  "Creates a rendezvous on this host; called by the process of rank 0.")
      .def("get_unique_id", &TcpBootstrap::getUniqueId)
      .def(
          "initialize",
          [](TcpBootstrap& self, const UniqueId& id, std::optional<std::int64_t> timeout) {
            self.initialize(id, timeout.value_or(-1));
          },
          "unique_id"_a, "timeout"_a = nb::none(), Unlocked(),
          "Returns when all ranks are connected, or raises Timeout after `timeout` seconds, by default that of later "
          "calls, with the missing ranks.")
      .def(
          "initialize",
          [](TcpBootstrap& self, const std::string& address, std::optional<std::int64_t> timeout) {
            self.initialize(address, timeout.value_or(-1));
          },
          "interface_ip_port_trio"_a, "timeout"_a = nb::none(), Unlocked(),
          "The same by the address of rank 0: \"ip:port\", \"[ip6]:port\" or \"interface:ip:port\". Beyond one host "
          "MSCCLPP_SECRET must be set, the same on every rank.")
      .def(
          "set_timeout", [](TcpBootstrap& self, double seconds) { self.setTimeout(toMilliseconds(seconds)); },
          "seconds"_a, Unlocked(), "The timeout of later calls; by default MSCCLPP_BOOTSTRAP_TIMEOUT.")
      .def(
          "failure",
          [](const TcpBootstrap& self) -> std::optional<std::pair<int, std::string>> {
            const auto failure = self.failure();
            if (!failure) return std::nullopt;
            return std::pair(failure->rank, failure->reason);
          },
          "The first rank that failed and the reason, or None.");
  nb::class_<ProcessGroup>(module, "ProcessGroup", "This process as one rank of a job.")
      .def_static(
          "from_environment", &ProcessGroup::fromEnvironment,
          "Reads the variables of torchrun, mpirun or srun; None if no launcher started this process as a rank.")
      .def_prop_ro("rank", &ProcessGroup::rank)
      .def_prop_ro("size", &ProcessGroup::size)
      .def_prop_ro("local_rank", &ProcessGroup::localRank)
      .def_prop_ro("local_size", &ProcessGroup::localSize)
      .def(
          "connect",
          [](ProcessGroup& self, std::optional<std::int64_t> timeout) {
            return timeout ? self.connect(*timeout) : self.connect();
          },
          "timeout"_a = nb::none(), Unlocked(), "Connects to the other ranks, each of which calls it, in seconds.");
}

}  // namespace mscclpp::python
