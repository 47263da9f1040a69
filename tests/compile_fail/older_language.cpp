// An older version of C++ is refused in one sentence, which comes before all other errors.
// ARGUMENTS: -std=c++17
// EXPECT FIRST: mscclpp needs -std=c\+\+20
#include "mscclpp/host/communicator/communicator.hpp"
