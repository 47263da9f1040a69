// MSCCL++'s FIFO from a GPU to the host.
#pragma once

#include "mscclpp/fifo_device.hpp"
#include "mscclpp/host/proxy/fifo.hpp"
