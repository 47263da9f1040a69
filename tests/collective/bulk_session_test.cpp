// Bulk sessions on emulated threads.
#include "bulk_session_cases.hpp"
