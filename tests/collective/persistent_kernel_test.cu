// Many calls of a collective in one launch, on a GPU.
#include "persistent_kernel_cases.hpp"
