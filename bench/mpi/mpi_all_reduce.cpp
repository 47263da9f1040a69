// Times MPI_Allreduce (float, sum, out of place) as mscclpp-perf times CPU ranks: one line of JSON per size.
//
// usage: mpirun -n RANKS mpi_all_reduce CALLS REPEATS BYTES...
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int warmup = 20;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Microseconds per call: this rank's median over the repeats, or -1 if a result is wrong.
double timeAllReduce(std::size_t count, int calls, int repeats) {
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const std::vector<float> input(count, static_cast<float>(rank + 1));
  std::vector<float> output(count);
  const auto call = [&] {
    MPI_Allreduce(input.data(), output.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  };
  for (int i = 0; i < std::min(warmup, calls); ++i) call();
  std::vector<double> microseconds;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    MPI_Barrier(MPI_COMM_WORLD);
    call();  // absorbs the skew that the barrier leaves
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    const std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - start;
    microseconds.push_back(passed.count() / calls);
  }
  const auto expected = static_cast<float>(ranks * (ranks + 1) / 2);
  const bool right = std::all_of(output.begin(), output.end(), [&](float value) { return value == expected; });
  return right ? median(microseconds) : -1;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc < 4) {
    std::fprintf(stderr, "usage: mpirun -n RANKS mpi_all_reduce CALLS REPEATS BYTES...\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const int calls = std::max(1, std::atoi(argv[1]));
  const int repeats = std::max(1, std::atoi(argv[2]));
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 3; i < argc; ++i) {
    const std::size_t bytes = std::strtoull(argv[i], nullptr, 10);
    const double mine = timeAllReduce(bytes / sizeof(float), calls, repeats);
    double slowest = 0;
    double fastest = 0;
    MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&mine, &fastest, 1, MPI_DOUBLE, MPI_MIN, 0, MPI_COMM_WORLD);
    if (rank == 0) {
      if (fastest < 0) {
        std::fprintf(stderr, "wrong results at %zu bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
      std::printf("{\"bytes\":%zu,\"us\":%.3f}\n", bytes, slowest);
      std::fflush(stdout);
    }
  }
  MPI_Finalize();
  return 0;
}
