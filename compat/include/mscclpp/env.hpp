// MSCCL++'s view of the environment.
#pragma once

#include "mscclpp/host/env.hpp"
