// The cases of channel/memory.hpp on GPUs.
#include "memory_cases.hpp"
