// Checked calls on emulated threads.
#define MSCCLPP_CHECKED 1
#include "call_check_cases.hpp"
