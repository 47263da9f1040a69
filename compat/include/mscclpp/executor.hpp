// MSCCL++'s executor of plans. Programs link mscclpp-executor (CMake: mscclpp::executor) too.
#pragma once

#include "mscclpp/core.hpp"
#include "mscclpp/kernels/executor.hpp"
