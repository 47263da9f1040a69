// The cases of the FIFO on a GPU.
#include "sync/fifo_cases.hpp"
