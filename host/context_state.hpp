// What a context owns.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "memory_transport.hpp"
#include "mscclpp/host/device.hpp"
#include "network.hpp"
#include "token_pool.hpp"

namespace mscclpp::detail {

class ContextState {
 public:
  OfferTable& offers() noexcept { return offers_; }

  std::shared_ptr<TokenPool> tokens(const Device& device) {
    std::lock_guard lock(mutex_);
    auto& pool = pools_[{device.type, device.id}];
    if (!pool) pool = std::make_shared<TokenPool>(device);
    return pool;
  }

  /// Opened at the first call.
  std::shared_ptr<Network> network(Transport transport) {
    std::lock_guard lock(mutex_);
    auto& network = networks_[transport];
    if (!network) network = openNetwork(transport);
    return network;
  }

 private:
  OfferTable offers_;
  std::mutex mutex_;
  std::map<std::pair<DeviceType, int>, std::shared_ptr<TokenPool>> pools_;
  std::map<Transport, std::shared_ptr<Network>> networks_;
};

}  // namespace mscclpp::detail
