// Row exchanges on a GPU.
#include "row_exchange_cases.hpp"
