// The older name of port_channel_device.hpp.
#pragma once

#include "mscclpp/port_channel_device.hpp"
