// Port channels of ranks that share a GPU.
#include "port_channel_cases.hpp"
