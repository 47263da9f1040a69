// Dispatch and combine through port channels, on GPUs.
#include "port_transport_cases.hpp"
