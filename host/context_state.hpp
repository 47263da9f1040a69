// What a context owns.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "memory_transport.hpp"
#include "mscclpp/host/device.hpp"
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

 private:
  OfferTable offers_;
  std::mutex mutex_;
  std::map<std::pair<DeviceType, int>, std::shared_ptr<TokenPool>> pools_;
};

}  // namespace mscclpp::detail
