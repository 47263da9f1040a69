// The cases of collective/traced.hpp on a GPU.
#include "traced_cases.hpp"
