// The functions of the NVIDIA management library that report links. It is loaded if available, never linked.
//
// Unlike CUDA it also reports GPUs that CUDA_VISIBLE_DEVICES hides from this process; containers may hide them.
#pragma once

#include <optional>
#include <string>

namespace mscclpp::detail {

/// The active NVLinks of a GPU.
struct NvLinks {
  int active;
  int version;     ///< version of NVLink; 0 if no link is active
  bool viaSwitch;  ///< whether the links lead to an NVSwitch
};

class Nvml {
 public:
  /// Loads the library; see error() if that fails.
  Nvml();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Why the library is not available; empty if it is.
  const std::string& error() const { return error_; }
  /// Empty if NVML is not available or does not know the GPU.
  std::optional<NvLinks> links(const std::string& pciBusId) const;
  /// Whether NVLink connects two GPUs, directly or through switches. Empty if NVML does not report it.
  std::optional<bool> connectedByNvlink(const std::string& pciBusId, const std::string& other) const;

 private:
  struct Functions;
  void* library_ = nullptr;
  Functions* functions_ = nullptr;
  std::string error_;
};

}  // namespace mscclpp::detail
