// The pipelined all-reduce on a GPU.
#include "all_reduce_pipelined_cases.hpp"
