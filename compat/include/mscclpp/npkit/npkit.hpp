// NPKit's calls, which collect nothing: instrumented programs compile and run.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "mscclpp/device.hpp"
#include "mscclpp/gpu_utils.hpp"
#include "mscclpp/npkit/npkit_event.hpp"
#include "mscclpp/npkit/npkit_struct.hpp"

class NpKit {
 public:
  static constexpr std::uint64_t kMaxNumGpuThreadBlocks = 1024;
  static constexpr std::uint64_t kMaxNumCpuThreads = 64;

  static void Init(int /*rank*/) {}
  static void Dump(const std::string& /*folder*/) {}
  static void Shutdown() {}

  /// Null: nothing is collected.
  static NpKitEventCollectContext* GetGpuEventCollectContexts() { return nullptr; }
  static std::uint64_t* GetCpuTimestamp() {
    static thread_local std::uint64_t now;
    now = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    return &now;
  }
  static void CollectCpuEvent(std::uint8_t /*type*/, std::uint32_t /*size*/, std::uint32_t /*rsvd*/,
                              std::uint64_t /*timestamp*/, int /*channel*/) {}

  static MSCCLPP_DEVICE_INLINE void CollectGpuEventShm(std::uint8_t /*type*/, std::uint32_t /*size*/,
                                                       std::uint32_t /*rsvd*/, std::uint64_t /*timestamp*/,
                                                       NpKitEvent* /*buffer*/, std::uint64_t* /*head*/) {}
  static MSCCLPP_DEVICE_INLINE void StoreGpuEventShm(NpKitEventCollectContext* /*contexts*/, NpKitEvent* /*buffer*/,
                                                     std::uint64_t /*head*/) {}
};
