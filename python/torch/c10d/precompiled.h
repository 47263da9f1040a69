// What the compiler prepares once for all files of the backend. It is a main file then, for which g++ refuses the
// once pragma.
#include "torch_headers.hpp"
