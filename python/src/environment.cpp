// The settings of the environment, the CPUs near a GPU, and what this build and the current device can do.
#include <nanobind/stl/chrono.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "gpu_support.hpp"
#include "module.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/cuda/numa.hpp"

namespace mscclpp::python {

void bindEnvironment(nb::module_& module) {
  nb::class_<Env>(module, "Env", "The settings from the environment; docs/environment.md describes the variables.")
      .def_ro("log_level", &Env::logLevel)
      .def_ro("log_subsys", &Env::logSubsys)
      .def_ro("log_file", &Env::logFile)
      .def_ro("debug", &Env::debug)
      .def_ro("debug_subsys", &Env::debugSubsys)
      .def_ro("debug_file", &Env::debugFile)
      .def_ro("hostid", &Env::hostid)
      .def_ro("socket_family", &Env::socketFamily)
      .def_ro("socket_ifname", &Env::socketIfname)
      .def_ro("comm_id", &Env::commId)
      .def_ro("bootstrap_timeout", &Env::bootstrapTimeout)
      .def_ro("heartbeat_timeout", &Env::heartbeatTimeout)
      .def_ro("wait_timeout", &Env::waitTimeout)
      .def_ro("hca_devices", &Env::hcaDevices)
      .def_ro("ibv_so", &Env::ibvSo)
      .def_ro("ibv_mode", &Env::ibvMode)
      .def_ro("ib_gid_index", &Env::ibGidIndex)
      .def_ro("force_disable_gdr", &Env::forceDisableGdr)
      .def_ro("algo", &Env::algo)
      .def_ro("tuning_file", &Env::tuningFile)
      .def_ro("ll128", &Env::ll128)
      .def_ro("force_disable_nvls", &Env::forceDisableNvls)
      .def_ro("cuda_ipc_use_default_stream", &Env::cudaIpcUseDefaultStream)
      .def_ro("cache_dir", &Env::cacheDir)
      .def_ro("cccl_include_dir", &Env::ccclIncludeDir)
      .def_ro("cuda_include_dir", &Env::cudaIncludeDir)
      .def_ro("npkit_dump_dir", &Env::npkitDumpDir);
  module.def("env", &env,
             "The environment as it was at the first use in this process. Raises InvalidUsage for a value "
             "that is not allowed.");
  module.def("get_device_numa_node", &getDeviceNumaNode, "device_id"_a,
             "The NUMA node of a GPU; -1 if the system does not report it. Raises InvalidUsage without such a GPU.");
  module.def("numa_bind", &numaBind, "node"_a,
             "Binds the calling thread to the CPUs of a NUMA node; -1 changes nothing. Raises InvalidUsage if there is "
             "no such node, or the thread may run on none of its CPUs.");
  module.def("is_nvls_supported", &nvlsSupported, Unlocked(),
             "Whether multicast (NVLS) may be used on the current GPU; False without CUDA.");
  module.def("is_bulk_supported", &bulkSupported, Unlocked(),
             "Whether the current GPU has bulk asynchronous copies (sm_90 and newer); False without CUDA.");
  module.def("gpu_architecture", &gpuArchitecture, Unlocked(),
             "The architecture of the current GPU, such as \"90a\"; empty without a GPU or without CUDA.");
  module.attr("gpu_architectures") = nb::str(MSCCLPP_PYTHON_GPU_ARCHITECTURES).attr("split")();
  module.attr("has_cuda") = MSCCLPP_HAVE_CUDA == 1;
  module.attr("__version__") = MSCCLPP_PYTHON_VERSION;
}

}  // namespace mscclpp::python
