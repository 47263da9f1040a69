// The pipelined all-reduce on a GPU.
#include "collective/all_reduce_pipelined_cases.hpp"
