// 07: a custom proxy service: kernels send requests of any meaning, and a host thread serves them. The service
// and the device code; cpu.cpp and gpu.cu run them.
#pragma once

#include <cstdint>

#include "mscclpp/host/proxy/proxy.hpp"
#include "mscclpp/sync/fifo.hpp"

namespace example {

/// Counts its requests; a real service might start a series of transfers for each request.
class CustomProxyService {
 public:
  explicit CustomProxyService(mscclpp::Device device)
      : proxy_([this](mscclpp::ProxyTrigger trigger) { handle(trigger); },
               mscclpp::ProxyOptions{.thread = {.device = device}}) {}

  void startProxy() { proxy_.start(); }
  /// When it returns, everything that was pushed before has been handled. Throws what the handler threw.
  void stopProxy() { proxy_.stop(); }
  mscclpp::FifoHandle fifo() const { return proxy_.fifo()->deviceHandle(); }

  int ones() const { return ones_; }
  int twos() const { return twos_; }
  int deadbeefs() const { return deadbeefs_; }

 private:
  // An exception that leaves a handler ends the proxy, and the waits of kernels on its FIFO.
  void handle(const mscclpp::ProxyTrigger& trigger) {
    if (trigger.fst == 1) {
      ++ones_;
    } else if (trigger.fst == 2) {
      ++twos_;
    } else if (trigger.fst == 0xdeadbeef) {
      ++deadbeefs_;
    } else {
      throw mscclpp::Error("an unknown request: " + std::to_string(trigger.fst), mscclpp::ErrorCode::InvalidUsage);
    }
  }

  int ones_ = 0;
  int twos_ = 0;
  int deadbeefs_ = 0;
  mscclpp::Proxy proxy_;  // last: its thread uses the rest
};

/// The device's side, called by any number of threads: three requests each, and a wait until the third has been
/// handled. Returns whether it was.
inline MSCCLPP_HOST_DEVICE bool makeRequests(mscclpp::FifoHandle fifo) {
  mscclpp::ProxyTrigger trigger;
  trigger.fst = 1;
  fifo.push(trigger);
  trigger.fst = 2;
  fifo.push(trigger);
  trigger.fst = 0xdeadbeef;
  return fifo.sync(fifo.push(trigger));
}

}  // namespace example
