// MSCCL++'s exceptions.
#pragma once

#include "mscclpp/host/error.hpp"
