#include "device_handle.hpp"

#include "mscclpp/host/base/env.hpp"

namespace mscclpp::python {

void requireCpu(DeviceType device) {
  if (device == DeviceType::CPU) return;
  throw Error(
      "this handle is of a GPU, where kernels call it: pass its bytes, .raw, to a kernel; the host calls handles of "
      "CPU "
      "ranks only",
      ErrorCode::InvalidUsage);
}

void throwFailedWait(const std::shared_ptr<WaitMonitor>& monitor) {
  if (monitor) monitor->check();
  throw Error("the wait has ended after " + std::to_string(env()->waitTimeout.count()) +
                  " ms, which MSCCLPP_WAIT_TIMEOUT sets: the peer, or the proxy, has not answered",
              ErrorCode::Timeout);
}

}  // namespace mscclpp::python
