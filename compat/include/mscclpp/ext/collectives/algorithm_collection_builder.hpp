// MSCCL++'s builder of collections of algorithms.
#pragma once

#include "mscclpp/algorithm.hpp"
#include "mscclpp/core.hpp"
