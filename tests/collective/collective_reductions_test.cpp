// The collectives that reduce, on emulated threads.
#include "collective_reductions_cases.hpp"
