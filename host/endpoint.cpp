#include "mscclpp/host/endpoint.hpp"

#include "byte_stream.hpp"
#include "network.hpp"

namespace mscclpp {

namespace {
constexpr detail::Form form{"Endpoint", 0x50444e45, 2};
}

// The verbs settings stay at home: what a peer must know of them is in the details.
std::vector<char> Endpoint::serialize() const {
  detail::ByteWriter writer(form);
  writer.put(static_cast<std::uint32_t>(config_.transport)).put(static_cast<std::uint32_t>(config_.device.type));
  writer.put(config_.device.id).put(config_.maxWriteQueueSize).put(hostHash_).put(pidHash_).putBytes(details_);
  return writer.finish();
}

Endpoint Endpoint::deserialize(const std::vector<char>& data) {
  detail::ByteReader reader(data, form);
  Endpoint endpoint;
  endpoint.config_.transport = reader.getEnum(Transport::NumTransports);
  endpoint.config_.device.type = reader.getEnum(static_cast<DeviceType>(static_cast<int>(DeviceType::GPU) + 1));
  endpoint.config_.device.id = reader.get<int>();
  endpoint.config_.maxWriteQueueSize = reader.get<int>();
  endpoint.hostHash_ = reader.get<std::uint64_t>();
  endpoint.pidHash_ = reader.get<std::uint64_t>();
  endpoint.details_ = reader.getBytes();
  reader.end();
  if (endpoint.details_.size() > detail::NetworkEndpoint::maxDetails) reader.fail("a field is out of range");
  return endpoint;
}

}  // namespace mscclpp
