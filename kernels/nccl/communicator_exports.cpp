// Exported functions: creation, end and properties of communicators.
#include <cstring>
#include <exception>
#include <future>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "host/bootstrap/unique_id.hpp"
#include "kernels/nccl/comm_table.hpp"
#include "kernels/nccl/device.hpp"
#include "kernels/nccl/group.hpp"
#include "kernels/nccl/log.hpp"
#include "kernels/nccl/newer_functions.hpp"
#include "mscclpp/host/base/env.hpp"

using namespace mscclpp;
using namespace mscclpp::nccl;

namespace {

// Where a program first meets this library: says that it is this one.
void printVersionOnce() {
  static const bool isPrinted = [] {
    if (!printsVersion()) return true;
    const int version = env()->ncclVersion;
    print("mscclpp in place of NCCL, as version " + std::to_string(version / 10000) + "." +
          std::to_string(version / 100 % 100) + "." + std::to_string(version % 100));
    return true;
  }();
  static_cast<void>(isPrinted);
}

UniqueId toUniqueId(const ncclUniqueId& id) {
  UniqueId uniqueId;
  static_assert(sizeof uniqueId == sizeof id);
  std::memcpy(uniqueId.data(), &id, sizeof id);
  return uniqueId;
}

void requireRank(int ranks, int rank) {
  if (ranks < 1) throwInvalidArgument("nranks is " + std::to_string(ranks) + "; it must be positive");
  if (rank >= 0 && rank < ranks) return;
  throwInvalidArgument("rank is " + std::to_string(rank) + "; the ranks are 0 to " + std::to_string(ranks - 1));
}

ncclComm_t connectWith(PendingConnections& connections, const UniqueId& id, int ranks, int rank,
                       const CommConfig& config) {
  PendingConnection connection({&connections});
  return addComm(std::make_shared<Comm>(connection.connect(id, ranks, rank), config));
}

void connect(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank, const ncclConfig_t* config) {
  requirePointer(comm, "comm");
  *comm = nullptr;
  requireRank(ranks, rank);
  printVersionOnce();
  const UniqueId uniqueId = toUniqueId(id);
  if (!detail::isUniqueId(uniqueId)) {
    throwInvalidArgument(
        "commId is not what ncclGetUniqueId gives: call it on rank 0, and pass all bytes of the id on to the others");
  }
  // The caller's config and its texts may be gone when the group ends.
  const CommConfig options = readConfig(config);
  Group::ofThisThread().connect(nullptr, uniqueId, [=](PendingConnections& connections) {
    *comm = connectWith(connections, uniqueId, ranks, rank, options);
  });
}

/// What a function returns or throws, for later. So the caller's arguments are read now, since they may be gone when a
/// group ends, and the other ranks of a set-up can learn that they are wrong.
template <class Read>
auto readNow(const Read& read) {
  std::promise<std::invoke_result_t<Read>> value;
  try {
    value.set_value(read());
  } catch (const Error&) {
    value.set_exception(std::current_exception());
  }
  return [later = value.get_future().share()] { return later.get(); };
}

/// A rank joins a communicator that grows. That it cannot is an error of all ranks.
void join(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank, const ncclConfig_t* config) {
  if (comm != nullptr) *comm = nullptr;
  printVersionOnce();
  const UniqueId uniqueId = toUniqueId(id);
  const auto read = readNow([&] {
    requirePointer(comm, "newcomm");
    requireRank(ranks, rank);
    if (rank == 0) throwInvalidArgument("rank is 0, which a rank of the communicator that grows has");
    return readConfig(config);
  });
  Group::ofThisThread().connect(nullptr, uniqueId, [=](PendingConnections& connections) {
    CommConfig options;
    try {
      options = read();
    } catch (const Error&) {
      RankSet::giveUp(uniqueId, rank);
      throw;
    }
    *comm = connectWith(connections, uniqueId, ranks, rank, options);
  });
}

/// A function that is called by one rank and sets `value`.
template <class Value, class Get>
ncclResult_t query(const char* function, ncclComm_t comm, Value* value, const Get& get) {
  return guarded(function, [&] {
    requirePointer(value, "the pointer to the result");
    *value = get(*findComm(comm));
  });
}

}  // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
  return guarded("ncclGetUniqueId", [&] {
    requirePointer(uniqueId, "uniqueId");
    printVersionOnce();
    const UniqueId created = TcpBootstrap::createUniqueId();
    std::memcpy(uniqueId, created.data(), sizeof *uniqueId);
  });
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return guardedInGroup("ncclCommInitRank", [&] { connect(comm, nranks, commId, rank, nullptr); });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config) {
  return guardedInGroup("ncclCommInitRankConfig", [&] { connect(comm, nranks, commId, rank, config); });
}

// One id is enough for the ranks of a host.
ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds,
                                      ncclConfig_t* config) {
  return guardedInGroup("ncclCommInitRankScalable", [&] {
    requirePointer(commIds, "commIds");
    if (nId < 1 || nId > nranks) throwInvalidArgument("nId must be 1 to nranks");
    connect(newcomm, nranks, commIds[0], myrank, config);
  });
}

ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  return guardedInGroup("ncclCommInitAll", [&] {
    requirePointer(comm, "comm");
    if (ndev < 1) throwInvalidArgument("ndev must be positive");
    ncclUniqueId id{};
    const UniqueId created = TcpBootstrap::createUniqueId();
    std::memcpy(&id, created.data(), sizeof id);
    const bool hasDevices = deviceType() == DeviceType::GPU;
    Group& group = Group::ofThisThread();
    group.start();
    try {
      for (int rank = 0; rank < ndev; ++rank) {
        const DeviceScope scope(!hasDevices ? noDevice : devlist != nullptr ? devlist[rank] : rank);
        connect(comm + rank, ndev, id, rank, nullptr);
      }
    } catch (...) {
      group.drop();
      throw;
    }
    group.end();
  });
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config) {
  return guardedInGroup("ncclCommSplit", [&] {
    const auto parent = findComm(comm);
    if (newcomm != nullptr) *newcomm = nullptr;
    const auto read = readNow([&] {
      requirePointer(newcomm, "newcomm");
      return readConfig(config, parent->config());
    });
    Group::ofThisThread().setUp(parent, [=] { *newcomm = addComm(parent->split(color, key, read)); });
  });
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm,
                            ncclConfig_t* config, int shrinkFlags) {
  return guardedInGroup("ncclCommShrink", [&] {
    const auto parent = findComm(comm);
    if (newcomm != nullptr) *newcomm = nullptr;
    std::vector<int> excluded;
    if (excludeRanksCount > 0 && excludeRanksList != nullptr) {
      excluded.assign(excludeRanksList, excludeRanksList + excludeRanksCount);
    }
    const auto read = readNow([&] {
      requirePointer(newcomm, "newcomm");
      if (excludeRanksCount < 0) throwInvalidArgument("excludeRanksCount is negative");
      if (excludeRanksCount > 0) requirePointer(excludeRanksList, "excludeRanksList");
      return readConfig(config, parent->config());
    });
    Group::ofThisThread().setUp(parent, [=] { *newcomm = addComm(parent->shrink(excluded, read, shrinkFlags)); });
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return guarded("ncclCommFinalize", [&] { findComm(comm)->finalize(); });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return guarded("ncclCommDestroy", [&] {
    if (comm != nullptr) removeComm(comm);
  });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return guarded("ncclCommAbort", [&] {
    if (comm != nullptr) removeComm(comm)->abort();
  });
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags) {
  return guarded("ncclCommRevoke", [&] {
    if (revokeFlags != 0) throwInvalidArgument("revokeFlags must be NCCL_REVOKE_DEFAULT");
    findComm(comm)->revoke();
  });
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  return query("ncclCommCount", comm, count, [](const Comm& c) { return c.size(); });
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  return query("ncclCommCuDevice", comm, device, [](const Comm& c) { return c.device(); });
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return query("ncclCommUserRank", comm, rank, [](const Comm& c) { return c.rank(); });
}

ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* uniqueId) {
  return guarded("ncclCommGetUniqueId", [&] {
    requirePointer(uniqueId, "uniqueId");
    const UniqueId id = findComm(comm)->growthId();
    std::memcpy(uniqueId, id.data(), sizeof *uniqueId);
  });
}

ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank, ncclComm_t* newcomm,
                          ncclConfig_t* config) {
  return guardedInGroup("ncclCommGrow", [&] {
    if (comm == nullptr) {
      requirePointer(uniqueId, "uniqueId");
      return join(newcomm, nRanks, *uniqueId, rank, config);
    }
    const auto parent = findComm(comm);
    if (newcomm != nullptr) *newcomm = nullptr;
    const auto read = readNow([&] {
      requirePointer(newcomm, "newcomm");
      if (rank != -1) throwInvalidArgument("rank must be -1 with a communicator: its ranks keep their numbers");
      GrowthOptions options{{}, readConfig(config, parent->config())};
      if (uniqueId != nullptr) options.id = toUniqueId(*uniqueId);
      return options;
    });
    Group::ofThisThread().connect(parent, parent->growthId(), [=](PendingConnections& connections) {
      *newcomm = addComm(parent->grow(nRanks, read, connections));
    });
  });
}

ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags) {
  return guardedInGroup("ncclCommSuspend", [&] {
    if (flags != suspendMemory) throwInvalidArgument("flags must be NCCL_SUSPEND_MEM");
    const auto found = findComm(comm);
    Group::ofThisThread().setUp(found, [=] { found->suspend(); });
  });
}

ncclResult_t ncclCommResume(ncclComm_t comm) {
  return guardedInGroup("ncclCommResume", [&] {
    const auto found = findComm(comm);
    Group::ofThisThread().setUp(found, [=] { found->resume(); });
  });
}

ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value) {
  return guarded("ncclCommMemStats", [&] {
    requirePointer(value, "value");
    const Comm::MemoryUse use = findComm(comm)->memoryUse();
    switch (stat) {
      case ncclStatGpuMemSuspend:
        *value = use.suspendable;
        return;
      case ncclStatGpuMemSuspended:
        *value = use.isSuspended ? 1 : 0;
        return;
      case ncclStatGpuMemPersist:
        *value = use.persistent;
        return;
      case ncclStatGpuMemTotal:
        *value = use.persistent + (use.isSuspended ? 0 : use.suspendable);
        return;
    }
    throwInvalidArgument("unknown statistic " + std::to_string(static_cast<int>(stat)));
  });
}

ncclResult_t ncclSetEncryption(const ncclEncryptionConfig_t* config) {
  return guarded("ncclSetEncryption", [&] {
    requirePointer(config, "config");
    if (config->mode != 0) throwUnsupported("encryption");
  });
}

[[gnu::alias("ncclGetUniqueId")]] decltype(ncclGetUniqueId) pncclGetUniqueId;
[[gnu::alias("ncclCommInitRank")]] decltype(ncclCommInitRank) pncclCommInitRank;
[[gnu::alias("ncclCommInitRankConfig")]] decltype(ncclCommInitRankConfig) pncclCommInitRankConfig;
[[gnu::alias("ncclCommInitRankScalable")]] decltype(ncclCommInitRankScalable) pncclCommInitRankScalable;
[[gnu::alias("ncclCommInitAll")]] decltype(ncclCommInitAll) pncclCommInitAll;
[[gnu::alias("ncclCommSplit")]] decltype(ncclCommSplit) pncclCommSplit;
[[gnu::alias("ncclCommShrink")]] decltype(ncclCommShrink) pncclCommShrink;
[[gnu::alias("ncclCommFinalize")]] decltype(ncclCommFinalize) pncclCommFinalize;
[[gnu::alias("ncclCommDestroy")]] decltype(ncclCommDestroy) pncclCommDestroy;
[[gnu::alias("ncclCommAbort")]] decltype(ncclCommAbort) pncclCommAbort;
[[gnu::alias("ncclCommRevoke")]] decltype(ncclCommRevoke) pncclCommRevoke;
[[gnu::alias("ncclCommCount")]] decltype(ncclCommCount) pncclCommCount;
[[gnu::alias("ncclCommCuDevice")]] decltype(ncclCommCuDevice) pncclCommCuDevice;
[[gnu::alias("ncclCommUserRank")]] decltype(ncclCommUserRank) pncclCommUserRank;
[[gnu::alias("ncclCommGetUniqueId")]] decltype(ncclCommGetUniqueId) pncclCommGetUniqueId;
[[gnu::alias("ncclCommGrow")]] decltype(ncclCommGrow) pncclCommGrow;
[[gnu::alias("ncclCommSuspend")]] decltype(ncclCommSuspend) pncclCommSuspend;
[[gnu::alias("ncclCommResume")]] decltype(ncclCommResume) pncclCommResume;
[[gnu::alias("ncclCommMemStats")]] decltype(ncclCommMemStats) pncclCommMemStats;
[[gnu::alias("ncclSetEncryption")]] decltype(ncclSetEncryption) pncclSetEncryption;

}  // extern "C"
