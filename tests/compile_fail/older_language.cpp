// An older version of C++ is refused in one sentence.
// EXPECT: mscclpp needs -std=c\+\+20
#ifndef CORRECT
#undef __cplusplus
#define __cplusplus 201703L
#endif
#include "mscclpp/config.hpp"
