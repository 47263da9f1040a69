// The cases of sync/ on GPUs.
#include "grid_barrier_cases.hpp"
#include "grid_gate_cases.hpp"
#include "semaphore_cases.hpp"
#include "team_barrier_cases.hpp"
