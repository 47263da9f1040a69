// The functions of libibverbs that the library calls. It is never linked: binaries start on machines that have none.
//
// Most verbs that carry data (posting, polling) are inline functions of its header, which call the device's driver
// through a table in the opened device; only what is listed here are symbols.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

namespace mscclpp::detail::ib {

struct Library {
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
  /// Null where the library is older than 34.
  decltype(&::ibv_reg_dmabuf_mr) regDmabufMr;
};

/// Loaded at the first call: MSCCLPP_IBV_SO, or libibverbs.so.1. Null if there is no such library on this machine;
/// throws Error(InvalidUsage) if MSCCLPP_IBV_SO names something that is not it.
const Library* findLibrary();

/// The same; throws Error(SystemError) if there is none.
const Library& library();

/// Releases verbs objects.
struct Release {
  void operator()(ibv_context* context) const noexcept { library().closeDevice(context); }
  void operator()(ibv_pd* domain) const noexcept { library().deallocPd(domain); }
  void operator()(ibv_mr* region) const noexcept { library().deregMr(region); }
  void operator()(ibv_cq* queue) const noexcept { library().destroyCq(queue); }
  void operator()(ibv_comp_channel* channel) const noexcept { library().destroyCompChannel(channel); }
  void operator()(ibv_qp* pair) const noexcept { library().destroyQp(pair); }
};

/// Owns a verbs object; what it was made from must outlive it.
template <typename T>
using Owner = std::unique_ptr<T, Release>;

}  // namespace mscclpp::detail::ib
