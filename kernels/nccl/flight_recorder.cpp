#include "kernels/nccl/flight_recorder.hpp"

#include <algorithm>
#include <sstream>

namespace mscclpp::nccl {

void FlightRecorder::add(const PendingCall& call) noexcept {
  try {
    const auto now = std::chrono::steady_clock::now() - start_;
    const std::lock_guard lock(mutex_);
    const Record record{calls_,
                        std::chrono::duration_cast<std::chrono::microseconds>(now).count(),
                        call.function,
                        call.call.type,
                        call.call.reduction.op,
                        call.hasPeer() ? call.peer() : call.call.root,
                        call.hasPeer() ? call.call.count + call.call.receivedCount : call.call.count,
                        call.call.stream};
    if (records_.size() < capacity) {
      records_.push_back(record);
    } else {
      records_[calls_ % capacity] = record;
    }
    ++calls_;
  } catch (...) {  // out of memory: the call itself matters more
  }
}

std::vector<std::string> FlightRecorder::lines(std::size_t most) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> lines;
  const std::uint64_t kept = std::min<std::uint64_t>(records_.size(), most);
  for (std::uint64_t number = calls_ - kept; number < calls_; ++number) {
    const Record& record = records_[number % capacity];
    std::ostringstream line;
    line << record.number << ' ' << record.microseconds << " us " << nameOf(record.function) << " count "
         << record.count << ' ' << mscclpp::nameOf(record.type);
    if (record.function >= Function::Send) {
      line << " peer " << record.root;
    } else {
      line << " op " << mscclpp::nameOf(record.op) << " root " << record.root;
    }
    line << " stream " << record.stream;
    lines.push_back(line.str());
  }
  return lines;
}

}  // namespace mscclpp::nccl
