// Several calls as one, on CPU threads.
#include "joined_calls_cases.hpp"
