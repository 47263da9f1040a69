// The pipelined all-reduce on a GPU.

// Checked calls begin together, which would hide what these cases look for.
#define MSCCLPP_CHECKED 0

#include "all_reduce_pipelined_cases.hpp"
