// Send and receive on emulated threads.
#include "send_receive_cases.hpp"
