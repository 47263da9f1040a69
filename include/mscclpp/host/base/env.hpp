// The environment variables of the library: read once, checked, and kept as typed values.
#pragma once

#include <chrono>
#include <memory>
#include <string>

namespace mscclpp {

/// The library's settings from the environment. The comments name the variables; one that is unset or empty has the
/// default. Not included: MSCCLPP_SECRET, which is read when it is used and never stored.
class Env {
 public:
  /// Reads the environment as it is now. Throws Error(InvalidUsage) with the variable, its value and the allowed
  /// values. Most callers want `env()`.
  Env();

  // Log (logger.hpp). The last three are the older names: used if the first three are unset, which are then empty.
  const std::string logLevel;     ///< MSCCLPP_LOG_LEVEL: NONE, ERROR (default), WARN, INFO or DEBUG.
  const std::string logSubsys;    ///< MSCCLPP_LOG_SUBSYS: ALL (default) or ENV,GPU,NET,CONN,EXEC,NCCL,ALGO; ^ = but.
  const std::string logFile;      ///< MSCCLPP_LOG_FILE: a path, %h = host name, %p = process id; default: stderr.
  const std::string debug;        ///< MSCCLPP_DEBUG: VERSION, WARN, INFO, ABORT or TRACE.
  const std::string debugSubsys;  ///< MSCCLPP_DEBUG_SUBSYS: NCCL's names (INIT, COLL, P2P, ...) or ALL; ^ = but.
  const std::string debugFile;    ///< MSCCLPP_DEBUG_FILE.

  // Connecting to and monitoring the other ranks (bootstrap.hpp).
  const std::string hostid;  ///< MSCCLPP_HOSTID: ranks with equal text count as one host.
  /// MSCCLPP_SOCKET_FAMILY, else NCCL_SOCKET_FAMILY: AF_INET, AF_INET6 or nothing (either).
  const std::string socketFamily;
  /// MSCCLPP_SOCKET_IFNAME, else NCCL_SOCKET_IFNAME: comma list of prefixes, ^ excludes, = matches exactly.
  const std::string socketIfname;
  const std::string commId;  ///< MSCCLPP_COMM_ID: "ip:port" of the rendezvous of launched ranks.
  const std::chrono::milliseconds bootstrapTimeout;  ///< MSCCLPP_BOOTSTRAP_TIMEOUT: timeout of calls in seconds, 30.
  const std::chrono::milliseconds heartbeatTimeout;  ///< MSCCLPP_HEARTBEAT_TIMEOUT: seconds of silence until a rank
                                                     ///< is treated as failed, 5; 0 = only if its connection closes.

  // Waits.
  const std::chrono::milliseconds waitTimeout;  ///< MSCCLPP_WAIT_TIMEOUT: timeout of device waits in seconds, 30.

  // InfiniBand.
  const std::string hcaDevices;  ///< MSCCLPP_HCA_DEVICES: comma list of the devices that IB0, IB1, ... mean.
  const std::string ibvSo;       ///< MSCCLPP_IBV_SO: path of libibverbs.
  const std::string ibvMode;     ///< MSCCLPP_IBV_MODE: host (default) or host-no-atomic.
  const int ibGidIndex;          ///< MSCCLPP_IB_GID_INDEX: 0 to 255; -1 if unset: chosen.
  const bool forceDisableGdr;    ///< MSCCLPP_FORCE_DISABLE_GDR.

  // Collectives.
  const std::string algo;        ///< MSCCLPP_ALGO: algorithms to use, such as all_reduce:pipelined,all_gather:ll128.
  const std::string tuningFile;  ///< MSCCLPP_TUNING_FILE: measurements to select algorithms by.

  // GPU.
  const std::string ll128;             ///< MSCCLPP_LL128: auto (default), on or off.
  const bool forceDisableNvls;         ///< MSCCLPP_FORCE_DISABLE_NVLS is true, or NCCL_NVLS_ENABLE is 0.
  const bool cudaIpcUseDefaultStream;  ///< MSCCLPP_CUDAIPC_USE_DEFAULT_STREAM.

  // The NCCL layer.
  const std::string ncclSharedLibPath;           ///< MSCCLPP_NCCL_LIB_PATH: the NCCL to fall back to.
  const std::string forceNcclFallbackOperation;  ///< MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION: all, or a comma list of
                                                 ///< allreduce, allgather, broadcast, reducescatter.
  const bool ncclSymmetricMemory;                ///< MSCCLPP_NCCL_SYMMETRIC_MEMORY.
  const std::string ncclDevice;                  ///< MSCCLPP_NCCL_DEVICE: gpu (default) or cpu.
  const int ncclVersion;                         ///< MSCCLPP_NCCL_VERSION: the version that it reports, 22809.
  const bool ncclInfo;                           ///< MSCCLPP_NCCL_INFO: a summary of the calls at the end.
  const std::chrono::milliseconds ncclTimeout;   ///< MSCCLPP_NCCL_TIMEOUT: of its waits, in seconds, 86400.
  const std::string ncclDumpDir;                 ///< MSCCLPP_NCCL_DUMP_DIR: calls before a failure are written there.
  const std::string ncclDebug;                   ///< NCCL_DEBUG in upper case, unchecked.
  const int ncclMaxCtas;                         ///< NCCL_MAX_CTAS: the most blocks of a kernel; 0 if unset.

  // Kernels compiled at run time (jit/program.hpp).
  const std::string nvrtcLibPath;    ///< MSCCLPP_NVRTC_LIB_PATH: libnvrtc, or the folder that has it.
  const std::string includeDir;      ///< MSCCLPP_INCLUDE_DIR: has mscclpp/config.hpp; default: headers in the library.
  const std::string ccclIncludeDir;  ///< MSCCLPP_CCCL_INCLUDE_DIR: has cuda/std/cstddef.
  const std::string cudaIncludeDir;  ///< MSCCLPP_CUDA_INCLUDE_DIR: has cuda_fp16.h.

  // Files.
  const std::string cacheDir;      ///< MSCCLPP_CACHE_DIR: default $XDG_CACHE_HOME/mscclpp or $HOME/.cache/mscclpp.
  const std::string npkitDumpDir;  ///< MSCCLPP_NPKIT_DUMP_DIR: Collectives write traces there.
};

/// The environment as it was at the first call in this process. Any thread may call it.
std::shared_ptr<Env> env();

}  // namespace mscclpp
