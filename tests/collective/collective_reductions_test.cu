// The collectives that reduce, on a GPU.
#include "collective_reductions_cases.hpp"
