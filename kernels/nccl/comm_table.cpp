#include "kernels/nccl/comm_table.hpp"

#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "kernels/nccl/handle.hpp"
#include "kernels/nccl/result.hpp"

namespace mscclpp::nccl {

namespace {

struct Table {
  std::shared_mutex mutex;
  std::unordered_map<ncclComm_t, std::shared_ptr<Comm>> comms;

  const std::shared_ptr<Comm>& at(ncclComm_t handle) const {
    const auto found = comms.find(handle);
    if (found != comms.end()) return found->second;
    throwInvalidArgument(handle == nullptr ? "the communicator is null"
                                           : "this is no communicator of mscclpp, or it was destroyed");
  }
};

// Never destroyed: communicators that a program leaves when it ends are not torn down after the driver.
Table& table() {
  static auto* const all = new Table;
  return *all;
}

}  // namespace

ncclComm_t addComm(std::shared_ptr<Comm> comm) {
  if (comm == nullptr) return nullptr;
  const auto handle = newHandle<ncclComm_t>();
  const std::lock_guard lock(table().mutex);
  table().comms.emplace(handle, std::move(comm));
  return handle;
}

std::shared_ptr<Comm> findComm(ncclComm_t handle) {
  const std::shared_lock lock(table().mutex);
  return table().at(handle);
}

std::shared_ptr<Comm> removeComm(ncclComm_t handle) {
  const std::lock_guard lock(table().mutex);
  std::shared_ptr<Comm> comm = table().at(handle);
  table().comms.erase(handle);
  return comm;
}

}  // namespace mscclpp::nccl
