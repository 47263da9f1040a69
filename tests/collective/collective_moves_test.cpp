// The collectives that move data, on emulated threads.
#include "collective_moves_cases.hpp"
