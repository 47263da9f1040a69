// The CPUs near a GPU, and binding a thread to them.
#pragma once

namespace mscclpp {

/// The NUMA node of a GPU; -1 if the system does not report it, as in most virtual machines. Throws Error(InvalidUsage)
/// if there is no such GPU.
int getDeviceNumaNode(int deviceId);

/// Binds the calling thread to the CPUs of a node, among those on which it may run. Node -1, which getDeviceNumaNode
/// returns if the node is unknown, changes nothing and is logged. Throws Error(InvalidUsage) if there is no such node,
/// or the thread may run on none of its CPUs.
void numaBind(int node);

}  // namespace mscclpp
