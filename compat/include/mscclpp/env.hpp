// MSCCL++'s view of the environment.
#pragma once

#include "mscclpp/host/base/env.hpp"
