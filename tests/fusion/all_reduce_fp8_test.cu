// All-reduces in fp8 on a GPU.
#include "all_reduce_fp8_cases.hpp"
