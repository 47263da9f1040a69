// The older name of memory_channel_device.hpp.
#pragma once

#include "mscclpp/memory_channel_device.hpp"
