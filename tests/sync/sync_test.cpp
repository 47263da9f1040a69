// The cases of sync/ on CPU threads.
#include "grid_barrier_cases.hpp"
#include "grid_gate_cases.hpp"
#include "semaphore_cases.hpp"
#include "team_barrier_cases.hpp"
