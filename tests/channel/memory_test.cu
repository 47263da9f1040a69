// The cases of channel/memory.hpp on GPUs.
#include "channel/memory_cases.hpp"
