// The cases of channel/memory.hpp on CPU threads.
#include "memory_cases.hpp"
