#include "mscclpp/host/transport/endpoint.hpp"

#include "host/base/byte_stream.hpp"
#include "host/transport/transport_backend.hpp"

namespace mscclpp {

namespace {
constexpr detail::WireFormat format{"Endpoint", 0x50444e45, 2};
}

// The settings of the transports are not sent: the info contains everything that a peer needs.
std::vector<char> Endpoint::serialize() const {
  detail::ByteWriter writer(format);
  writer.put(static_cast<std::uint32_t>(config_.transport)).put(static_cast<std::uint32_t>(config_.device.type));
  writer.put(config_.device.id).put(config_.maxWriteQueueSize).put(hostHash_).put(pidHash_).putBytes(info_);
  return writer.finish();
}

Endpoint Endpoint::deserialize(const std::vector<char>& data) {
  detail::ByteReader reader(data, format);
  Endpoint endpoint;
  endpoint.config_.transport = reader.getEnum(Transport::NumTransports);
  endpoint.config_.device.type = reader.getEnum(static_cast<DeviceType>(static_cast<int>(DeviceType::GPU) + 1));
  endpoint.config_.device.id = reader.get<int>();
  endpoint.config_.maxWriteQueueSize = reader.get<int>();
  endpoint.hostHash_ = reader.get<std::uint64_t>();
  endpoint.pidHash_ = reader.get<std::uint64_t>();
  endpoint.info_ = reader.getBytes();
  reader.expectEnd();
  if (endpoint.info_.size() > detail::EndpointResources::maxInfoBytes) reader.fail("a field is out of range");
  return endpoint;
}

}  // namespace mscclpp
