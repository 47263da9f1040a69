// GEMMs that are reduced in packets, on GPUs.

// Checked calls begin together, which would hide what these cases look for.
#define MSCCLPP_CHECKED 0

#include "gemm_packet_reduce_cases.hpp"
