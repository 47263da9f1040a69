// MSCCL++'s functions for NUMA nodes.
#pragma once

#include "mscclpp/host/cuda/numa.hpp"
