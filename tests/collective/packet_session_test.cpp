// The packet session on emulated threads.
#include "packet_session_cases.hpp"
