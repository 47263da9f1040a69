// MSCCL++'s proxy.
#pragma once

#include "mscclpp/fifo.hpp"
#include "mscclpp/host/proxy/proxy.hpp"
