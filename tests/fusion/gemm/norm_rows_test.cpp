// Residual and RMSNorm of the rows of a GEMM, on emulated threads.
#include "norm_rows_cases.hpp"
