#include "host/transport/verbs/ibv_symbols.hpp"

#include <dlfcn.h>

#include <string>

#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail::ib {

namespace {

constexpr const char* systemLibrary = "libibverbs.so.1";

struct Loaded {
  bool found = false;
  /// The reason why the library was not loaded.
  std::string reason;
  IbvSymbols functions{};
};

template <typename Function>
void resolve(void* handle, Function& function, const char* name) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
}

template <typename Function>
void resolveRequired(void* handle, Function& function, const char* name, std::string& missing) {
  resolve(handle, function, name);
  if (function == nullptr) missing += std::string(missing.empty() ? "" : ", ") + name;
}

Loaded load() {
  Loaded loaded;
  const std::string& chosen = env()->ibvSo;
  // Never closed: device drivers register themselves in it for the lifetime of the process.
  void* handle = ::dlopen(chosen.empty() ? systemLibrary : chosen.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    loaded.reason = reason == nullptr ? "unknown reason" : reason;
    return loaded;
  }
  IbvSymbols& f = loaded.functions;
  std::string missing;
  resolveRequired(handle, f.getDeviceList, "ibv_get_device_list", missing);
  resolveRequired(handle, f.freeDeviceList, "ibv_free_device_list", missing);
  resolveRequired(handle, f.getDeviceName, "ibv_get_device_name", missing);
  resolveRequired(handle, f.openDevice, "ibv_open_device", missing);
  resolveRequired(handle, f.closeDevice, "ibv_close_device", missing);
  resolveRequired(handle, f.queryDevice, "ibv_query_device", missing);
  resolveRequired(handle, f.queryPort, "ibv_query_port", missing);
  resolveRequired(handle, f.allocPd, "ibv_alloc_pd", missing);
  resolveRequired(handle, f.deallocPd, "ibv_dealloc_pd", missing);
  resolveRequired(handle, f.regMr, "ibv_reg_mr", missing);
  resolveRequired(handle, f.deregMr, "ibv_dereg_mr", missing);
  resolveRequired(handle, f.createCq, "ibv_create_cq", missing);
  resolveRequired(handle, f.destroyCq, "ibv_destroy_cq", missing);
  resolveRequired(handle, f.createCompChannel, "ibv_create_comp_channel", missing);
  resolveRequired(handle, f.destroyCompChannel, "ibv_destroy_comp_channel", missing);
  resolveRequired(handle, f.getCqEvent, "ibv_get_cq_event", missing);
  resolveRequired(handle, f.ackCqEvents, "ibv_ack_cq_events", missing);
  resolveRequired(handle, f.createQp, "ibv_create_qp", missing);
  resolveRequired(handle, f.modifyQp, "ibv_modify_qp", missing);
  resolveRequired(handle, f.destroyQp, "ibv_destroy_qp", missing);
  resolveRequired(handle, f.wcStatusStr, "ibv_wc_status_str", missing);
  resolve(handle, f.regDmabufMr, "ibv_reg_dmabuf_mr");
  loaded.found = missing.empty();
  if (!loaded.found) loaded.reason = "it lacks " + missing;
  return loaded;
}

const Loaded& loadedOnce() {
  static const Loaded loaded = load();
  return loaded;
}

}  // namespace

const IbvSymbols* findIbvSymbols() {
  const Loaded& loaded = loadedOnce();
  if (loaded.found) return &loaded.functions;
  if (!env()->ibvSo.empty()) {
    throw Error("MSCCLPP_IBV_SO=" + env()->ibvSo + " is not a libibverbs that can be loaded: " + loaded.reason,
                ErrorCode::InvalidUsage);
  }
  return nullptr;
}

const IbvSymbols& ibvSymbols() {
  if (const IbvSymbols* found = findIbvSymbols()) return *found;
  throw Error(std::string("InfiniBand and RoCE need ") + systemLibrary + ", which cannot be loaded (" +
                  loadedOnce().reason +
                  "); install rdma-core (Debian: ibverbs-providers), or name the library in MSCCLPP_IBV_SO",
              ErrorCode::SystemError);
}

}  // namespace mscclpp::detail::ib
