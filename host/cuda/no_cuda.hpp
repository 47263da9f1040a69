// The error of a build without the CUDA toolkit.
#pragma once

namespace mscclpp::detail {

inline constexpr char noCudaText[] =
    "this build of mscclpp has no CUDA: build it with -Dcuda=enabled to use GPUs, or use CPU ranks: "
    "DeviceType::CPU (in Python device_type=mscclpp.DeviceType.CPU), HostBuffer and Transport::SharedMemory";

/// Throws Error(InvalidUsage) with a message on how to build with CUDA or use the library without GPUs.
[[noreturn]] void noCuda();

}  // namespace mscclpp::detail
