// GEMMs whose epilogue reduces over the ranks, on emulated threads.

// Checked calls begin together, which would hide what these cases look for.
#define MSCCLPP_CHECKED 0

#include "gemm_reduce_cases.hpp"
