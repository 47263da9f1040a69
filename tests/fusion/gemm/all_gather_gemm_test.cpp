// GEMMs of gathered rows, on emulated threads.
#include "all_gather_gemm_cases.hpp"
