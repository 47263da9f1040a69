// The cases of sync/ on CPU threads.
#include "sync/grid_barrier_cases.hpp"
#include "sync/semaphore_cases.hpp"
#include "sync/team_barrier_cases.hpp"
