// Residual and RMSNorm of the rows of a GEMM, on GPUs.
#include "norm_rows_cases.hpp"
