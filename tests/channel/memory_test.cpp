// The cases of channel/memory.hpp on CPU threads.
#include "channel/memory_cases.hpp"
