// All-reduce and RMSNorm on emulated threads.
#include "all_reduce_rms_norm_cases.hpp"
