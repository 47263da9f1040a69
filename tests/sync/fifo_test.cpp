// The cases of the FIFO on CPU threads.
#include "sync/fifo_cases.hpp"
