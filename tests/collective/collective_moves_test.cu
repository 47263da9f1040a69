// The collectives that move data, on a GPU.

// Checked calls begin together, which would hide what these cases look for.
#define MSCCLPP_CHECKED 0

#include "collective_moves_cases.hpp"
