// The cases of sync/ on GPUs.
#include "sync/grid_barrier_cases.hpp"
#include "sync/semaphore_cases.hpp"
#include "sync/team_barrier_cases.hpp"
