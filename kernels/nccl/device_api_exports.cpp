// Exported functions: NCCL's device API, which hands NCCL's own structures to kernels: this library has no form of
// them. A program finds the names, and an error if it calls one.
#include "kernels/nccl/comm_table.hpp"
#include "kernels/nccl/newer_functions.hpp"
#include "kernels/nccl/result.hpp"

using namespace mscclpp::nccl;

extern "C" {

/// Ranks that reach each other by loads and stores: `nRanks` ranks, each `stride` from the next.
struct ncclTeam {
  int nRanks;
  int rank;
  int stride;
};
}

namespace {

constexpr const char* deviceApi = "the device API";

ncclResult_t unsupported(const char* function, const char* what) {
  return guarded(function, [&] { throwUnsupported(what); });
}

/// All ranks of a communicator. Without ranks if there is no such communicator: the caller has no result to look at.
ncclTeam teamOf(const char* function, ncclComm_t comm) {
  ncclTeam team{0, 0, 1};
  static_cast<void>(guarded(function, [&] {
    const auto found = findComm(comm);
    team = {found->size(), found->rank(), 1};
  }));
  return team;
}

/// The rank in the communicator of a team's rank.
int rankOf(const char* function, ncclComm_t comm, const ncclTeam& team, int rank) {
  return teamOf(function, comm).rank + (rank - team.rank) * team.stride;
}

}  // namespace

extern "C" {

// The callers' arguments are not looked at, and the caller removes them: so they need not be declared.
ncclResult_t ncclDevCommCreate() {
  return unsupported("ncclDevCommCreate", deviceApi);
}
ncclResult_t ncclDevCommDestroy() {
  return unsupported("ncclDevCommDestroy", deviceApi);
}
ncclResult_t ncclCommQueryProperties() {
  return unsupported("ncclCommQueryProperties", deviceApi);
}
ncclResult_t ncclGetLsaMultimemDevicePointer() {
  return unsupported("ncclGetLsaMultimemDevicePointer", deviceApi);
}
ncclResult_t ncclGetMultimemDevicePointer() {
  return unsupported("ncclGetMultimemDevicePointer", deviceApi);
}
ncclResult_t ncclGetLsaDevicePointer() {
  return unsupported("ncclGetLsaDevicePointer", deviceApi);
}
ncclResult_t ncclGetPeerDevicePointer() {
  return unsupported("ncclGetPeerDevicePointer", deviceApi);
}
ncclResult_t ncclGetMultimemDeviceLeInfo() {
  return unsupported("ncclGetMultimemDeviceLeInfo", deviceApi);
}
ncclResult_t ncclGetCftDeviceLeInfo() {
  return unsupported("ncclGetCftDeviceLeInfo", deviceApi);
}
ncclResult_t ncclGetPeerDeviceLeInfo() {
  return unsupported("ncclGetPeerDeviceLeInfo", deviceApi);
}
ncclResult_t ncclLsaBarrierCreateRequirement() {
  return unsupported("ncclLsaBarrierCreateRequirement", deviceApi);
}
ncclResult_t ncclGinBarrierCreateRequirement() {
  return unsupported("ncclGinBarrierCreateRequirement", deviceApi);
}
ncclResult_t ncclLLA2ACreateRequirement() {
  return unsupported("ncclLLA2ACreateRequirement", deviceApi);
}
ncclResult_t ncclGinOutboxCreateRequirement() {
  return unsupported("ncclGinOutboxCreateRequirement", deviceApi);
}
ncclResult_t ncclGinInboxA2ACreateRequirement() {
  return unsupported("ncclGinInboxA2ACreateRequirement", deviceApi);
}

// It has no error to return.
int ncclLLA2ACalcSlots(int /*maxElts*/, int /*maxEltSize*/) {
  return 0;
}

ncclTeam ncclTeamWorld(ncclComm_t comm) {
  return teamOf("ncclTeamWorld", comm);
}
ncclTeam ncclTeamLsa(ncclComm_t comm) {
  return teamOf("ncclTeamLsa", comm);
}
ncclTeam ncclTeamCft(ncclComm_t comm, int /*mode*/) {
  return teamOf("ncclTeamCft", comm);
}
ncclTeam ncclTeamCftMultimem(ncclComm_t comm) {
  return teamOf("ncclTeamCftMultimem", comm);
}
// Of the ranks with the same place on every host: on one host a rank has none but itself.
ncclTeam ncclTeamRail(ncclComm_t comm) {
  const int ranks = teamOf("ncclTeamRail", comm).nRanks;
  return {ranks > 0 ? 1 : 0, 0, ranks > 0 ? ranks : 1};
}
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam team, int rank) {
  return rankOf("ncclTeamRankToWorld", comm, team, rank);
}
int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam team, int rank) {
  return rankOf("ncclTeamRankToLsa", comm, team, rank);
}

[[gnu::alias("ncclDevCommCreate")]] decltype(ncclDevCommCreate) pncclDevCommCreate;
[[gnu::alias("ncclDevCommDestroy")]] decltype(ncclDevCommDestroy) pncclDevCommDestroy;
[[gnu::alias("ncclCommQueryProperties")]] decltype(ncclCommQueryProperties) pncclCommQueryProperties;
[[gnu::alias(
    "ncclGetLsaMultimemDevicePointer")]] decltype(ncclGetLsaMultimemDevicePointer) pncclGetLsaMultimemDevicePointer;
[[gnu::alias("ncclGetMultimemDevicePointer")]] decltype(ncclGetMultimemDevicePointer) pncclGetMultimemDevicePointer;
[[gnu::alias("ncclGetLsaDevicePointer")]] decltype(ncclGetLsaDevicePointer) pncclGetLsaDevicePointer;
[[gnu::alias("ncclGetPeerDevicePointer")]] decltype(ncclGetPeerDevicePointer) pncclGetPeerDevicePointer;
[[gnu::alias("ncclGetMultimemDeviceLeInfo")]] decltype(ncclGetMultimemDeviceLeInfo) pncclGetMultimemDeviceLeInfo;
[[gnu::alias("ncclGetCftDeviceLeInfo")]] decltype(ncclGetCftDeviceLeInfo) pncclGetCftDeviceLeInfo;
[[gnu::alias("ncclGetPeerDeviceLeInfo")]] decltype(ncclGetPeerDeviceLeInfo) pncclGetPeerDeviceLeInfo;
[[gnu::alias(
    "ncclLsaBarrierCreateRequirement")]] decltype(ncclLsaBarrierCreateRequirement) pncclLsaBarrierCreateRequirement;
[[gnu::alias(
    "ncclGinBarrierCreateRequirement")]] decltype(ncclGinBarrierCreateRequirement) pncclGinBarrierCreateRequirement;
[[gnu::alias("ncclLLA2ACreateRequirement")]] decltype(ncclLLA2ACreateRequirement) pncclLLA2ACreateRequirement;
[[gnu::alias(
    "ncclGinOutboxCreateRequirement")]] decltype(ncclGinOutboxCreateRequirement) pncclGinOutboxCreateRequirement;
[[gnu::alias(
    "ncclGinInboxA2ACreateRequirement")]] decltype(ncclGinInboxA2ACreateRequirement) pncclGinInboxA2ACreateRequirement;
[[gnu::alias("ncclLLA2ACalcSlots")]] decltype(ncclLLA2ACalcSlots) pncclLLA2ACalcSlots;
[[gnu::alias("ncclTeamWorld")]] decltype(ncclTeamWorld) pncclTeamWorld;
[[gnu::alias("ncclTeamLsa")]] decltype(ncclTeamLsa) pncclTeamLsa;
[[gnu::alias("ncclTeamCft")]] decltype(ncclTeamCft) pncclTeamCft;
[[gnu::alias("ncclTeamCftMultimem")]] decltype(ncclTeamCftMultimem) pncclTeamCftMultimem;
[[gnu::alias("ncclTeamRail")]] decltype(ncclTeamRail) pncclTeamRail;
[[gnu::alias("ncclTeamRankToWorld")]] decltype(ncclTeamRankToWorld) pncclTeamRankToWorld;
[[gnu::alias("ncclTeamRankToLsa")]] decltype(ncclTeamRankToLsa) pncclTeamRankToLsa;

}  // extern "C"
