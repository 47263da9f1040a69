// The cases of collective/traced.hpp on CPU threads.
#include "collective/traced_cases.hpp"
