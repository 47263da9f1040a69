#include "host/transport/verbs/endpoint_info.hpp"

#include <algorithm>

#include "host/base/byte_stream.hpp"

namespace mscclpp::detail::ib {

namespace {

constexpr WireFormat format{"verbs endpoint", 0x53425256, 1};
// Longer names are rejected: they would make messages unreadable.
constexpr std::size_t maxText = 128;

std::vector<char> textOf(const std::string& text) {
  return {text.begin(), text.begin() + static_cast<std::ptrdiff_t>(std::min(text.size(), maxText))};
}

// The name appears in messages, so it must not contain control characters.
std::string readText(ByteReader& reader) {
  const std::vector<char> bytes = reader.getBytes();
  const auto printable = [](char c) { return c >= ' ' && c <= '~'; };
  if (bytes.size() > maxText || !std::all_of(bytes.begin(), bytes.end(), printable))
    reader.fail("a name is too long or has characters that cannot be printed");
  return {bytes.begin(), bytes.end()};
}

bool readFlag(ByteReader& reader) {
  return reader.getEnum(2U) != 0;
}

}  // namespace

std::vector<char> EndpointInfo::serialize() const {
  ByteWriter writer(format);
  writer.putBytes(textOf(nic)).putBytes(textOf(process)).put(static_cast<std::uint32_t>(mode));
  writer.put(std::uint32_t{ethernet}).put(mtu).put(lid).put(std::uint32_t{hasGid}).put(gid).put(atomics);
  writer.put(static_cast<std::uint32_t>(queuePairs.size()));
  for (const auto& pair : queuePairs) writer.put(pair.number).put(pair.initialPsn);
  return writer.finish();
}

EndpointInfo EndpointInfo::deserialize(const std::vector<char>& bytes) {
  ByteReader reader(bytes, format);
  EndpointInfo info;
  info.nic = readText(reader);
  info.process = readText(reader);
  info.mode = reader.getEnum(static_cast<SignalMode>(static_cast<std::uint32_t>(SignalMode::Immediate) + 1));
  info.ethernet = readFlag(reader);
  info.mtu = reader.get<std::uint32_t>();
  if (info.mtu < 1 || info.mtu > 5) reader.fail("invalid MTU");
  info.lid = reader.get<std::uint32_t>();
  info.hasGid = readFlag(reader);
  info.gid = reader.get<Gid>();
  info.atomics = reader.get<std::uint32_t>();
  const auto pairs = reader.get<std::uint32_t>();
  if (pairs == 0 || pairs > maxQueuePairs) reader.fail("the number of queue pairs is out of range");
  for (std::uint32_t i = 0; i < pairs; ++i) {
    QueuePairAddress address{};
    address.number = reader.get<std::uint32_t>();
    address.initialPsn = reader.get<std::uint32_t>();
    info.queuePairs.push_back(address);
  }
  reader.expectEnd();
  return info;
}

}  // namespace mscclpp::detail::ib
