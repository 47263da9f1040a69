// Dispatch and combine on GPUs.
#include "dispatch_combine_cases.hpp"
