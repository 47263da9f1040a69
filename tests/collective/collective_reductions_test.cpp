// The collectives that reduce, on emulated threads.

// Checked calls begin together, which would hide what these cases look for.
#define MSCCLPP_CHECKED 0

#include "collective_reductions_cases.hpp"
