// GEMMs whose epilogue reduces over the ranks, on emulated threads.
#include "gemm_reduce_cases.hpp"
