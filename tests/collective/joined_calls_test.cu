// Several calls as one, on a GPU.
#include "joined_calls_cases.hpp"
