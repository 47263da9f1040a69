// Groups by name: how operators of PyTorch, whose arguments are tensors, numbers and strings, find the collectives of
// this rank. The functions are exported, for the module of these operators.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "host/base/process_identity.hpp"
#include "mscclpp/kernels/collectives.hpp"

namespace mscclpp::python {

/// A group of ranks under its name.
class [[gnu::visibility("default")]] NamedGroup {
 public:
  /// The collectives of this rank for buffers of a device type.
  using Make = std::function<std::shared_ptr<Collectives>(DeviceType)>;

  NamedGroup(std::string name, int ranks, Make make)
      : name_(std::move(name)), ranks_(static_cast<std::size_t>(ranks)), make_(std::move(make)) {}

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

  /// The collectives for CPU ranks. The first call makes them, together with the other ranks.
  Collectives& onCpu();
  /// The same for a GPU, which is the current one. Throws Error(InvalidUsage) if an earlier call was for another GPU.
  Collectives& onGpu(int device);

 private:
  const std::string name_;
  const std::size_t ranks_;
  const Make make_;
  std::shared_ptr<Collectives> cpu_;
  std::shared_ptr<Collectives> gpu_;
  int device_ = -1;
  const detail::OwnerProcess owner_;
};

/// The group of a name. It lives as long as the pointer, also if another thread ends the registration. Throws
/// Error(InvalidUsage) if there is none, and in a process that was forked from the rank.
[[gnu::visibility("default")]] std::shared_ptr<NamedGroup> findGroup(std::string_view name);

}  // namespace mscclpp::python
