// Packs of normalised rows on the CPU.
#include "norm_pack_cases.hpp"
