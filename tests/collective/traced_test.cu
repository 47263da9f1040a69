// The cases of collective/traced.hpp on a GPU.
#include "collective/traced_cases.hpp"
