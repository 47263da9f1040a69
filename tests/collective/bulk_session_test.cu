// Bulk sessions on a GPU.
#include "bulk_session_cases.hpp"
