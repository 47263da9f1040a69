// The collectives whose ranks contribute different numbers of elements, on a GPU.

// Checked calls begin together, which would hide what these cases look for.
#define MSCCLPP_CHECKED 0

#include "variable_counts_cases.hpp"
