// Residual and RMSNorm of the rows of a GEMM, on emulated threads.

// Checked calls begin together, which would hide what these cases look for.
#define MSCCLPP_CHECKED 0

#include "norm_rows_cases.hpp"
