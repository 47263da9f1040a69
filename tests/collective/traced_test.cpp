// The cases of collective/traced.hpp on CPU threads.
#include "traced_cases.hpp"
