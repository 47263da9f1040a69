// NVTX ranges: profilers show each call of the API by its name. Without a profiler a range costs a few nanoseconds.
#pragma once

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#endif

namespace mscclpp::nccl {

/// A range of the calling thread, in the domain "NCCL".
class ProfilerRange {
 public:
#if __has_include(<nvtx3/nvToolsExt.h>)
  explicit ProfilerRange(const char* name) noexcept {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name;
    nvtxDomainRangePushEx(domain(), &attributes);
  }
  ~ProfilerRange() {
    nvtxDomainRangePop(domain());
  }

 private:
  static nvtxDomainHandle_t domain() noexcept {
    static const nvtxDomainHandle_t handle = nvtxDomainCreateA("NCCL");
    return handle;
  }

 public:
#else
  explicit ProfilerRange(const char* /*name*/) noexcept {}
#endif
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace mscclpp::nccl
