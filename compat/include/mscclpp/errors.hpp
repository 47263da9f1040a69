// MSCCL++'s exceptions.
#pragma once

#include "mscclpp/host/base/error.hpp"
