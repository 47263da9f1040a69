// A vector is accessed as one word, so its number of elements is a power of two.
// EXPECT: the number of elements of a vector must be a power of two
#include "mscclpp/basic/vector.hpp"

#ifdef CORRECT
mscclpp::Vector<float, 4> pixels;
#else
mscclpp::Vector<float, 3> pixels;
#endif
