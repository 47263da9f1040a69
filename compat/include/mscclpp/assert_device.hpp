// MSCCL++'s assertion for device code, which is effective where DEBUG_BUILD is defined.
#pragma once

#include "mscclpp/device.hpp"

#if defined(DEBUG_BUILD)
#include <cstdio>

#include "mscclpp/arch/trap.hpp"

#define MSCCLPP_ASSERT_DEVICE(cond, msg)                                             \
  do {                                                                               \
    if (!(cond)) {                                                                   \
      printf("%s:%d: %s: assertion failed: %s\n", __FILE__, __LINE__, #cond, (msg)); \
      ::mscclpp::arch::trap();                                                       \
    }                                                                                \
  } while (false)
#else
#define MSCCLPP_ASSERT_DEVICE(cond, msg)
#endif
