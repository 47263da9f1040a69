// The memory of this process that TCP peers may write, by name.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "../../process_identity.hpp"

namespace mscclpp::detail::tcp {

/// A piece of memory on offer. Whoever touches it holds a Lease; withdrawing it waits for the leases to end.
class Registration {
 public:
  Registration(void* data, std::size_t size, int gpu) : data_(static_cast<char*>(data)), size_(size), gpu_(gpu) {}

  class Lease {
   public:
    Lease() = default;
    explicit Lease(std::shared_ptr<Registration> registration) : registration_(std::move(registration)) {}
    Lease(Lease&&) noexcept = default;
    Lease& operator=(Lease&& other) noexcept {
      std::swap(registration_, other.registration_);
      return *this;
    }
    ~Lease() {
      if (registration_) registration_->release();
    }
    explicit operator bool() const noexcept { return registration_ != nullptr; }

   private:
    std::shared_ptr<Registration> registration_;
  };

  /// Empty if the memory is no longer on offer. Hold it briefly: never while waiting for a peer.
  static Lease lease(const std::shared_ptr<Registration>& registration);

  char* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  /// -1: host memory.
  int gpu() const noexcept { return gpu_; }

  /// Returns when nobody has a lease any more, and none can be had.
  void withdraw() noexcept;

 private:
  void release() noexcept;

  char* data_;
  std::size_t size_;
  int gpu_;
  std::mutex mutex_;
  std::condition_variable idle_;
  int leases_ = 0;
  bool withdrawn_ = false;
};

class Registry {
 public:
  /// Under a fresh name.
  Id128 add(std::shared_ptr<Registration> registration);
  void remove(const Id128& name) noexcept;
  /// Null if there is none of that name.
  std::shared_ptr<Registration> find(const Id128& name) const;

 private:
  mutable std::mutex mutex_;
  std::map<Id128, std::shared_ptr<Registration>> byName_;
};

}  // namespace mscclpp::detail::tcp
