// Dispatch and combine on emulated threads.
#include "dispatch_combine_cases.hpp"
