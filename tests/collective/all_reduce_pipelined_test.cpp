// The pipelined all-reduce on emulated threads.
#include "collective/all_reduce_pipelined_cases.hpp"
