// The cases of basic/ on CPU threads.
#include "basic/access_cases.hpp"
#include "basic/bulk_cases.hpp"
#include "basic/bulk_copy_cases.hpp"
#include "basic/copy_cases.hpp"
#include "basic/element_cases.hpp"
#include "basic/group_cases.hpp"
#include "basic/reduce_op_cases.hpp"
#include "basic/wait_cases.hpp"
