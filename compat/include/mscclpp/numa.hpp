// MSCCL++'s functions about NUMA nodes.
#pragma once

#include "mscclpp/host/numa.hpp"
