// The cases of basic/ on CPU threads; arithmetic_test.cpp has those without memory that ranks share.
#include "bulk_cases.hpp"
#include "bulk_copy_cases.hpp"
#include "copy_cases.hpp"
#include "dynamic_parts_cases.hpp"
#include "group_cases.hpp"
#include "source_sink_cases.hpp"
#include "trace_cases.hpp"
#include "wait_cases.hpp"
