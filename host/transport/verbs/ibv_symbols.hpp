// The functions of libibverbs that the library calls. It is loaded at run time, never linked: binaries also start on
// machines without it.
//
// Most data-path verbs (posting, polling) are inline functions of its header, which call the device's driver through a
// table in the opened device; only the functions listed here are symbols.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

#include "host/base/process_identity.hpp"

namespace mscclpp::detail::ib {

struct IbvSymbols {
  decltype(&::ibv_get_device_list) getDeviceList;
  decltype(&::ibv_free_device_list) freeDeviceList;
  decltype(&::ibv_get_device_name) getDeviceName;
  decltype(&::ibv_open_device) openDevice;
  decltype(&::ibv_close_device) closeDevice;
  decltype(&::ibv_query_device) queryDevice;
  decltype(&::ibv_query_port) queryPort;
  decltype(&::ibv_alloc_pd) allocPd;
  decltype(&::ibv_dealloc_pd) deallocPd;
  decltype(&::ibv_reg_mr) regMr;
  decltype(&::ibv_dereg_mr) deregMr;
  decltype(&::ibv_create_cq) createCq;
  decltype(&::ibv_destroy_cq) destroyCq;
  decltype(&::ibv_create_comp_channel) createCompChannel;
  decltype(&::ibv_destroy_comp_channel) destroyCompChannel;
  decltype(&::ibv_get_cq_event) getCqEvent;
  decltype(&::ibv_ack_cq_events) ackCqEvents;
  decltype(&::ibv_create_qp) createQp;
  decltype(&::ibv_modify_qp) modifyQp;
  decltype(&::ibv_destroy_qp) destroyQp;
  decltype(&::ibv_wc_status_str) wcStatusStr;
  /// Null if the library is older than version 34.
  decltype(&::ibv_reg_dmabuf_mr) regDmabufMr;
};

/// Loaded at the first call: MSCCLPP_IBV_SO, or libibverbs.so.1. Null if there is no such library on this machine;
/// throws Error(InvalidUsage) if MSCCLPP_IBV_SO is not a path of libibverbs.
const IbvSymbols* findIbvSymbols();

/// The same; throws Error(SystemError) if there is none.
const IbvSymbols& ibvSymbols();

/// Releases verbs objects, in the process that created them. A forked child shares them with its parent and would
/// destroy the parent's, so there they are not released.
class IbvDeleter {
 public:
  void operator()(ibv_context* context) const noexcept {
    if (owner_.isCurrent()) ibvSymbols().closeDevice(context);
  }
  void operator()(ibv_pd* domain) const noexcept {
    if (owner_.isCurrent()) ibvSymbols().deallocPd(domain);
  }
  void operator()(ibv_mr* region) const noexcept {
    if (owner_.isCurrent()) ibvSymbols().deregMr(region);
  }
  void operator()(ibv_cq* queue) const noexcept {
    if (owner_.isCurrent()) ibvSymbols().destroyCq(queue);
  }
  void operator()(ibv_comp_channel* channel) const noexcept {
    if (owner_.isCurrent()) ibvSymbols().destroyCompChannel(channel);
  }
  void operator()(ibv_qp* pair) const noexcept {
    if (owner_.isCurrent()) ibvSymbols().destroyQp(pair);
  }

 private:
  OwnerProcess owner_;
};

/// Owns a verbs object; the object it was created from must outlive it.
template <typename T>
using IbvPtr = std::unique_ptr<T, IbvDeleter>;

}  // namespace mscclpp::detail::ib
