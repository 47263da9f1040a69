// The packet session on a GPU.
#include "packet_session_cases.hpp"
