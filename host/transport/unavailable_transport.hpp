// Replaces a transport that is not part of this build.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "host/transport/transport_backend.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

/// Every use throws Error(InvalidUsage) with a message that says how to get the transport.
class UnavailableTransport : public TransportBackend {
 public:
  UnavailableTransport(Transport transport, const TransportProperties& properties, std::string howToGetIt)
      : TransportBackend(transport, properties), howToGetIt_(std::move(howToGetIt)) {}

  ExportedMemory exportMemory(void*, std::size_t) override { fail(); }
  ImportedMemory importMemory(const MemoryHandle&, std::size_t, Deadline) override { fail(); }
  void importLocalMemory(const MemoryHandle&, void*, std::size_t) override { fail(); }
  std::shared_ptr<EndpointResources> createEndpoint(const EndpointConfig&) override { fail(); }
  std::shared_ptr<ConnectionBase> connect(std::shared_ptr<Context>, const Endpoint&, const Endpoint&,
                                          Deadline) override {
    fail();
  }

 private:
  [[noreturn]] void fail() const { throw Error(nameOf(transport()) + ": " + howToGetIt_, ErrorCode::InvalidUsage); }

  std::string howToGetIt_;
};

}  // namespace mscclpp::detail
