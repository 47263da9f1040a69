// The last calls of a rank, kept so that a failure can be explained: which call each rank was in.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/nccl/api_call.hpp"

namespace mscclpp::nccl {

/// A ring of records. Any thread may call the functions.
class FlightRecorder {
 public:
  static constexpr std::size_t capacity = 1000;

  /// Adds a call that is about to be enqueued, or on CPU ranks performed.
  void add(const PendingCall& call) noexcept;

  /// The calls that are kept, from the oldest to the newest, one line each: number, time in microseconds since the
  /// recorder was made, function, elements, type, and what else the function has. At most the last `most` of them.
  std::vector<std::string> lines(std::size_t most = capacity) const;

 private:
  struct Record {
    std::uint64_t number;
    std::int64_t microseconds;
    Function function;
    DataType type;
    ReduceOp op;
    int root;  ///< or peer
    std::size_t count;
    const void* stream;
  };

  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  mutable std::mutex mutex_;
  std::uint64_t calls_ = 0;
  std::vector<Record> records_;  // call number n is at n % capacity
};

}  // namespace mscclpp::nccl
