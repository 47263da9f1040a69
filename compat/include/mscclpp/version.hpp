// The version of MSCCL++'s interface that these headers provide; the library's version is in its pkg-config files.
#pragma once

#define MSCCLPP_MAJOR 0
#define MSCCLPP_MINOR 9
#define MSCCLPP_PATCH 0
#define MSCCLPP_VERSION (MSCCLPP_MAJOR * 10000 + MSCCLPP_MINOR * 100 + MSCCLPP_PATCH)

/// The commit, if the build defines one.
#if !defined(MSCCLPP_GIT_COMMIT)
#define MSCCLPP_GIT_COMMIT "unknown"
#endif
