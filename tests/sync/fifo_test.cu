// The cases of the FIFO on a GPU.
#include "fifo_cases.hpp"
