// The cases of pad signals on GPUs.
#include "pad_signals_cases.hpp"
