// Many calls of a collective in one launch, on emulated threads.

// Checked calls begin together, which would hide what these cases look for.
#define MSCCLPP_CHECKED 0

#include "persistent_kernel_cases.hpp"
