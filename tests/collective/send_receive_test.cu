// Send and receive on a GPU.
#include "send_receive_cases.hpp"
