// The cases of the FIFO on CPU threads.
#include "fifo_cases.hpp"
