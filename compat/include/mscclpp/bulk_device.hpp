// MSCCL++'s bulk copies, and the macro that tells whether this compilation has them: GPUs of compute capability 9.0 and
// newer, and CPUs.
#pragma once

#include "mscclpp/basic/bulk.hpp"
#include "mscclpp/device.hpp"
#include "mscclpp/poll_device.hpp"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define MSCCLPP_BULK_AVAILABLE 1
#else
#define MSCCLPP_BULK_AVAILABLE 0
#endif
