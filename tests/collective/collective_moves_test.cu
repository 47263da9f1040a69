// The collectives that move data, on a GPU.
#include "collective_moves_cases.hpp"
