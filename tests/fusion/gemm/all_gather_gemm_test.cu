// GEMMs of gathered rows, on GPUs.
#include "all_gather_gemm_cases.hpp"
