// Algorithms, collections of them, and their builder: MSCCL++'s header of this name.
#pragma once

#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/kernels/algorithm.hpp"
#include "mscclpp/kernels/algorithm_collection.hpp"
#include "mscclpp/kernels/algorithm_collection_builder.hpp"
