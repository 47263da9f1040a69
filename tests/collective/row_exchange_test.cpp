// Row exchanges on emulated threads.
#include "row_exchange_cases.hpp"
