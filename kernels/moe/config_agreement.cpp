#include "kernels/moe/config_agreement.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>

#include "host/base/byte_stream.hpp"
#include "host/bootstrap/group_agreement.hpp"
#include "kernels/moe/buffer_memory.hpp"
#include "kernels/moe/require.hpp"

namespace mscclpp::moe::detail {

namespace {

constexpr mscclpp::detail::WireFormat configFormat{"configuration of a moe::Buffer", 0x43454f4d, 1};

struct Property {
  const char* name;
  std::uint64_t value;
};

/// What the ranks have to agree on: it determines the slots of a rank and how its peers read what it sends. Numbers of
/// blocks and bulk copies may differ.
std::array<Property, 8> propertiesOf(const BufferConfig& config, DeviceType where) {
  return {{{"device type", static_cast<std::uint64_t>(where)},
           {"maxTokens", config.maxTokens},
           {"maxLowLatencyTokens", config.maxLowLatencyTokens},
           {"topk", static_cast<std::uint64_t>(config.topk)},
           {"experts", static_cast<std::uint64_t>(config.experts)},
           {"hidden", config.hidden},
           {"format", static_cast<std::uint64_t>(config.format)},
           {"alignment", config.alignment}}};
}

}  // namespace

void requireSameConfig(Communicator& communicator, const BufferConfig& config, DeviceType where) {
  const auto own = propertiesOf(config, where);
  const mscclpp::detail::GroupAgreement agreement(*communicator.bootstrap(), errorPrefix);
  const auto all = agreement.runStep("state its configuration", [&] {
    require(where == DeviceType::CPU || where == DeviceType::GPU, "the device type must be CPU or GPU");
    requireValid(config, agreement.size());
    mscclpp::detail::ByteWriter writer(configFormat);
    for (const Property& property : own) writer.put(property.value);
    return writer.finish();
  });
  std::array<std::uint64_t, std::tuple_size_v<decltype(own)>> first{};
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    mscclpp::detail::ByteReader reader(all[rank], configFormat);
    for (std::size_t i = 0; i < own.size(); ++i) {
      const auto value = reader.get<std::uint64_t>();
      if (rank == 0) first[i] = value;
      require(value == first[i], std::string(own[i].name) + " is " + std::to_string(first[i]) + " on rank 0, but " +
                                     std::to_string(value) + " on rank " + std::to_string(rank) +
                                     "; every rank must make the same buffer");
    }
    reader.expectEnd();
  }
}

}  // namespace mscclpp::moe::detail
