// The cases of element types, operators and factors on the CPU: ranks share no memory.
#include "element_cases.hpp"
#include "reduce_op_cases.hpp"
#include "scaled_source_cases.hpp"
