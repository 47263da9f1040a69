// Exchanges on a GPU.
#include "exchange_cases.hpp"
