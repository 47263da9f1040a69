// Packet sessions and tile pipelines on emulated threads.
#include "session_cases.hpp"
