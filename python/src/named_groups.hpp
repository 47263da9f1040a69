// Groups by name: how operators of PyTorch, whose arguments are tensors, numbers and strings, find the collectives of
// this rank. The functions are exported, for the module of these operators.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "host/base/process_identity.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "mscclpp/kernels/fused_gemms.hpp"

namespace mscclpp::python {

/// What a group has for buffers of a device type: its first use makes it, together with the other ranks.
template <class T>
struct OfDevices {
  using Make = std::function<std::shared_ptr<T>(DeviceType)>;

  Make make;
  std::shared_ptr<T> onCpu = nullptr;
  std::shared_ptr<T> onGpu = nullptr;
};

/// A group of ranks under its name.
class [[gnu::visibility("default")]] NamedGroup {
 public:
  NamedGroup(std::string name, int ranks, OfDevices<Collectives>::Make collectives, OfDevices<FusedGemms>::Make gemms)
      : name_(std::move(name)),
        ranks_(static_cast<std::size_t>(ranks)),
        collectives_{std::move(collectives)},
        gemms_{std::move(gemms)} {}

  const std::string& name() const noexcept {
    return name_;
  }
  std::size_t ranks() const noexcept {
    return ranks_;
  }
  /// Whether this process was forked from the rank.
  bool isInherited() const noexcept {
    return !owner_.isCurrent();
  }

  // For a GPU, which is the current one, or without a number for CPU ranks. Throws Error(InvalidUsage) if an earlier
  // call was for another GPU.
  Collectives& collectives(std::optional<int> gpu) {
    return get(collectives_, gpu);
  }
  FusedGemms& gemms(std::optional<int> gpu) {
    return get(gemms_, gpu);
  }

 private:
  template <class T>
  T& get(OfDevices<T> & devices, std::optional<int> gpu) {
    if (gpu) requireGpu(*gpu);
    auto& made = gpu ? devices.onGpu : devices.onCpu;
    if (made == nullptr) made = devices.make(gpu ? DeviceType::GPU : DeviceType::CPU);
    return *made;
  }
  void requireGpu(int gpu);

  const std::string name_;
  const std::size_t ranks_;
  OfDevices<Collectives> collectives_;
  OfDevices<FusedGemms> gemms_;
  std::optional<int> gpu_;
  const detail::OwnerProcess owner_;
};

/// The group of a name. It lives as long as the pointer, also if another thread ends the registration. Throws
/// Error(InvalidUsage) if there is none, and in a process that was forked from the rank.
[[gnu::visibility("default")]] std::shared_ptr<NamedGroup> findGroup(std::string_view name);

}  // namespace mscclpp::python
