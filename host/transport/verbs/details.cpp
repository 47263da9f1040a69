#include "details.hpp"

#include <algorithm>

#include "../../byte_stream.hpp"

namespace mscclpp::detail::ib {

namespace {

constexpr Form form{"verbs endpoint", 0x53425256, 1};
// Longer names come from nobody who means well, or make no readable message.
constexpr std::size_t maxText = 128;

std::vector<char> textOf(const std::string& text) {
  return {text.begin(), text.begin() + static_cast<std::ptrdiff_t>(std::min(text.size(), maxText))};
}

// Goes into messages, so it may hold nothing that a terminal would act on.
std::string readText(ByteReader& reader) {
  const std::vector<char> bytes = reader.getBytes();
  const auto printable = [](char c) { return c >= ' ' && c <= '~'; };
  if (bytes.size() > maxText || !std::all_of(bytes.begin(), bytes.end(), printable)) reader.fail("a name is no name");
  return {bytes.begin(), bytes.end()};
}

bool readFlag(ByteReader& reader) {
  return reader.getEnum(2U) != 0;
}

}  // namespace

std::vector<char> Details::serialize() const {
  ByteWriter writer(form);
  writer.putBytes(textOf(nic)).putBytes(textOf(process)).put(static_cast<std::uint32_t>(mode));
  writer.put(std::uint32_t{ethernet}).put(mtu).put(lid).put(std::uint32_t{hasGid}).put(gid).put(atomics);
  writer.put(static_cast<std::uint32_t>(queuePairs.size()));
  for (const auto& pair : queuePairs) writer.put(pair.number).put(pair.firstPacket);
  return writer.finish();
}

Details Details::deserialize(const std::vector<char>& bytes) {
  ByteReader reader(bytes, form);
  Details details;
  details.nic = readText(reader);
  details.process = readText(reader);
  details.mode = reader.getEnum(static_cast<SignalMode>(static_cast<std::uint32_t>(SignalMode::Immediate) + 1));
  details.ethernet = readFlag(reader);
  details.mtu = reader.get<std::uint32_t>();
  if (details.mtu < 1 || details.mtu > 5) reader.fail("there is no such MTU");
  details.lid = reader.get<std::uint32_t>();
  details.hasGid = readFlag(reader);
  details.gid = reader.get<Gid>();
  details.atomics = reader.get<std::uint32_t>();
  const auto pairs = reader.get<std::uint32_t>();
  if (pairs == 0 || pairs > maxQueuePairs) reader.fail("the number of queue pairs is out of range");
  for (std::uint32_t i = 0; i < pairs; ++i) {
    QueuePairAddress address{};
    address.number = reader.get<std::uint32_t>();
    address.firstPacket = reader.get<std::uint32_t>();
    details.queuePairs.push_back(address);
  }
  reader.end();
  return details;
}

}  // namespace mscclpp::detail::ib
