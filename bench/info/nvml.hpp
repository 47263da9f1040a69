// The few functions of the NVIDIA management library that tell of links; loaded where there is one, never linked.
#pragma once

#include <optional>
#include <string>

namespace mscclpp::info {

/// NVLinks of a GPU that are up.
struct Links {
  int active;
  int version;         ///< of NVLink; 0 if none is up
  bool throughSwitch;  ///< whether they lead to an NVSwitch
};

class Nvml {
 public:
  /// Loads the library, or notes why not.
  Nvml();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Empty if the library answers.
  const std::string& problem() const { return problem_; }
  /// Nothing if the library does not tell.
  std::optional<Links> links(const std::string& pciBusId) const;
  /// Whether NVLink connects two GPUs, directly or through switches. Nothing if the library does not tell.
  std::optional<bool> connectedByNvlink(const std::string& pciBusId, const std::string& other) const;

 private:
  struct Functions;
  void* library_ = nullptr;
  Functions* functions_ = nullptr;
  std::string problem_;
};

}  // namespace mscclpp::info
