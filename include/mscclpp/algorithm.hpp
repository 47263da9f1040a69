// Algorithms, collections of them, and their builder, with the channels of users' kernels: MSCCL++'s header of this name.
#pragma once

#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/host/channel/device_handle.hpp"
#include "mscclpp/host/channel/memory_channel.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/proxy/proxy_service.hpp"
#include "mscclpp/kernels/algorithm.hpp"
#include "mscclpp/kernels/algorithm_collection.hpp"
#include "mscclpp/kernels/algorithm_collection_builder.hpp"
