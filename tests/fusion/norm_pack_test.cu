// Packs of normalised rows on a GPU.
#include "norm_pack_cases.hpp"
