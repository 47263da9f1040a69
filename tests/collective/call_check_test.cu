// Checked calls on a GPU.
#define MSCCLPP_CHECKED 1
#include "call_check_cases.hpp"
