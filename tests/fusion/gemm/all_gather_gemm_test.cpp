// GEMMs of gathered rows, on emulated threads.

// Checked calls begin together, which would hide what these cases look for.
#define MSCCLPP_CHECKED 0

#include "all_gather_gemm_cases.hpp"
