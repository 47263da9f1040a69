// Two ranks and an all-reduce: the smallest program over NCCL's C API.
#include "tests/nccl/api.hpp"

int main() {
  ncclComm_t comms[2] = {};
  float values[2] = {1, 2};
  if (ncclCommInitAll(comms, 2, nullptr) != ncclSuccess || ncclGroupStart() != ncclSuccess) return 1;
  for (int rank = 0; rank < 2; ++rank) {
    if (ncclAllReduce(&values[rank], &values[rank], 1, ncclFloat32, ncclSum, comms[rank], nullptr) != ncclSuccess)
      return 1;
  }
  if (ncclGroupEnd() != ncclSuccess || values[0] != 3 || values[1] != 3) return 1;
  for (const ncclComm_t comm : comms) {
    if (ncclCommDestroy(comm) != ncclSuccess) return 1;
  }
  return 0;
}
