// GEMMs whose epilogue reduces over the ranks, on GPUs.
#include "gemm_reduce_cases.hpp"
