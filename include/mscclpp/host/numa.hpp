// Which CPUs are near a GPU, and keeping a thread there.
#pragma once

namespace mscclpp {

/// The NUMA node that a GPU hangs on; -1 if the system does not say. Throws Error(InvalidUsage) if there is no such GPU.
int getDeviceNumaNode(int deviceId);

/// Lets the calling thread run on the CPUs of a node only, as far as it may run there at all. Throws Error(InvalidUsage)
/// if there is no such node, or none of its CPUs is allowed.
void numaBind(int node);

}  // namespace mscclpp
