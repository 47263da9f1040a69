// Exchanges on emulated threads.
#include "exchange_cases.hpp"
