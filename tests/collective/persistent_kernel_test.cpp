// Many calls of a collective in one launch, on emulated threads.
#include "persistent_kernel_cases.hpp"
