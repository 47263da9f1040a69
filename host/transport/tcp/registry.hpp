// The memory of this process that TCP peers may write, by id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "host/base/fork_safe_condition.hpp"
#include "host/base/process_identity.hpp"

namespace mscclpp::detail::tcp {

/// A registered memory. A thread that accesses it holds a Guard; deregistration waits until all guards are released.
class Registration {
 public:
  Registration(void* data, std::size_t size, int gpu) : data_(static_cast<char*>(data)), size_(size), gpu_(gpu) {}

  class Guard {
   public:
    Guard() = default;
    explicit Guard(std::shared_ptr<Registration> registration) : registration_(std::move(registration)) {}
    Guard(Guard&&) noexcept = default;
    Guard& operator=(Guard&& other) noexcept {
      std::swap(registration_, other.registration_);
      return *this;
    }
    ~Guard() {
      if (registration_) registration_->release();
    }
    explicit operator bool() const noexcept { return registration_ != nullptr; }

   private:
    std::shared_ptr<Registration> registration_;
  };

  /// Empty if the memory is no longer registered. Hold it briefly, never while waiting for a peer.
  static Guard acquire(const std::shared_ptr<Registration>& registration);

  char* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  /// -1: host memory.
  int gpu() const noexcept { return gpu_; }

  /// Returns when all guards have been released; none can be acquired from then on.
  void deregister() noexcept;

 private:
  void release() noexcept;

  const OwnerProcess owner_;
  char* data_;
  std::size_t size_;
  int gpu_;
  std::mutex mutex_;
  ForkSafeCondition idle_;
  int users_ = 0;
  bool deregistered_ = false;
};

class Registry {
 public:
  /// Under a new id.
  Id128 add(std::shared_ptr<Registration> registration);
  void remove(const Id128& name) noexcept;
  /// Null if there is none with that id.
  std::shared_ptr<Registration> find(const Id128& name) const;

 private:
  mutable std::mutex mutex_;
  std::map<Id128, std::shared_ptr<Registration>> byId_;
};

}  // namespace mscclpp::detail::tcp
