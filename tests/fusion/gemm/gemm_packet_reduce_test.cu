// GEMMs that are reduced in packets, on GPUs.
#include "gemm_packet_reduce_cases.hpp"
