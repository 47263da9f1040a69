// GEMMs that are reduced in packets, on emulated threads.
#include "gemm_packet_reduce_cases.hpp"
