// All-reduces in fp8 on emulated threads.
#include "all_reduce_fp8_cases.hpp"
