// Packet sessions and tile pipelines on a GPU.
#include "session_cases.hpp"
