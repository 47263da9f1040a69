// A vector moves as one word, so it has a power of two of elements.
// EXPECT: a vector has a power of two of elements
#include "mscclpp/basic/vector.hpp"

#ifdef CORRECT
mscclpp::Vector<float, 4> pixels;
#else
mscclpp::Vector<float, 3> pixels;
#endif
